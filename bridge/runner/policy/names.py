"""The part of `policy.toml` that says what one name may do on this host: ``[names."agent@example.org"]``.

A root says whose a key is; only this says what the name may do here. Values and their shapes; nothing is decided here.
"""

from __future__ import annotations

import fnmatch
from typing import Annotated, Self

from pydantic import Field, model_validator

from bridge.presets.model import PresetLimits
from bridge.records.base import Name, ParamValue, Record, Text
from bridge.records.request import Profile

Hours = Annotated[str, Field(pattern=r"^hours-([01]\d|2[0-3])-([01]\d|2[0-3])$")]


class ParamRule(Record):
    """What a parameter may be: at least, at most, or one of these values."""

    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[ParamValue, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.at_least is None and self.at_most is None and not self.one_of:
            raise ValueError("expected at_least, at_most or one_of")
        return self

    def lets(self, value: ParamValue) -> bool:
        """Return whether a value is within the rule; a bound holds for numbers only."""
        if self.one_of and value not in self.one_of:
            return False
        if self.at_least is None and self.at_most is None:
            return True
        if isinstance(value, bool | str):
            return False
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)


class NameRules(Record):
    """What requests that this name signs may do; what is left out is as for everybody.

    Attributes:
        presets: patterns of preset names.
        params: what a parameter may be, by its name, in whatever preset has it.
        profiles: how strictly a claim may be measured.
        limits: the most that a run of this name gets.
        hours: local time in which its requests are taken; they wait until then.
        runners: the runners that take them, where several share this file; empty for all.
        per_hour: requests taken per hour; 0 for no limit.
        own_code: whether it may ask for presets that run the code of its request.
    """

    presets: tuple[Text, ...] = ("*",)
    params: dict[Name, ParamRule] = Field(default_factory=dict)
    profiles: tuple[Profile, ...] = ("smoke", "claim", "standing")
    limits: PresetLimits = PresetLimits()
    hours: Hours | None = None
    runners: tuple[Name, ...] = ()
    per_hour: Annotated[int, Field(ge=0)] | None = None
    own_code: bool = True

    def allows(self, preset: str) -> bool:
        """Return whether this name may ask for a preset."""
        return any(fnmatch.fnmatchcase(preset, pattern) for pattern in self.presets)


class FiledRules(NameRules):
    """Rules that lie in a file of the name's own, in `names.d` beside `policy.toml`."""
