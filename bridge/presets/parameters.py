"""Typed, bounded parameters of a preset: a received value becomes argv tokens, or a clear refusal.

Knows nothing about presets or files: a path is checked as text here, and after symlinks by the bounded checkout.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bridge.errors import ParameterError
from bridge.records.base import ParamValue, Record, Text

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SAFE_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")


class _Parameter(Record):
    """What all parameters share.

    Attributes:
        help: one line for people.
        unit: of the value, for people.
        allow_dash: whether the rendered value may begin with ``-``; without it a value can never become an option.
    """

    help: Text
    unit: Text | None = None
    allow_dash: bool = False
    default: ParamValue | None = None

    @model_validator(mode="after")
    def _default_fits(self) -> Self:
        if self.default is not None:
            try:
                render("default", self, self.default)
            except ParameterError as error:
                raise ValueError(str(error)) from error
        return self

    @abstractmethod
    def tokens(self, name: str, value: ParamValue) -> tuple[str, ...]:
        """Return the argv tokens of a value, or raise ParameterError."""


class IntParameter(_Parameter):
    """A whole number in a range."""

    type: Literal["int"]
    min: int
    max: int
    default: int | None = None

    def tokens(self, name: str, value: ParamValue) -> tuple[str, ...]:
        """Return the argv token of a value, or raise ParameterError."""
        if type(value) is not int:
            raise _wrong(name, value, "a whole number")
        if not self.min <= value <= self.max:
            raise _wrong(name, value, f"{self.min} to {self.max}")
        return (str(value),)


class FloatParameter(_Parameter):
    """A finite number in a range; a whole number is taken as one."""

    type: Literal["float"]
    min: float
    max: float
    default: float | None = None

    def tokens(self, name: str, value: ParamValue) -> tuple[str, ...]:
        """Return the argv token of a value, or raise ParameterError."""
        if type(value) not in (int, float):
            raise _wrong(name, value, "a number")
        if not self.min <= float(value) <= self.max:
            raise _wrong(name, value, f"{self.min} to {self.max}")
        return (repr(float(value)),)


class ChoiceParameter(_Parameter):
    """One of a few texts."""

    type: Literal["choice"]
    choices: Annotated[tuple[Text, ...], Field(min_length=1)]
    default: Text | None = None

    def tokens(self, name: str, value: ParamValue) -> tuple[str, ...]:
        """Return the argv token of a value, or raise ParameterError."""
        if type(value) is not str or value not in self.choices:
            raise _wrong(name, value, f"one of {', '.join(self.choices)}")
        return (value,)


class PathParameter(_Parameter):
    """A relative path below the workload tree: plain names joined with ``/``, none of them hidden or ``..``."""

    type: Literal["path"]
    root: Literal["workload"]
    default: Text | None = None

    def tokens(self, name: str, value: ParamValue) -> tuple[str, ...]:
        """Return the argv token of a value, or raise ParameterError."""
        if type(value) is not str or len(value) > 255 or _SAFE_PATH.fullmatch(value) is None:
            raise _wrong(name, value, "a relative path such as tests/unit, without '..', hidden parts or spaces")
        return (value,)


def _is_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"pattern {text!r} is none: {error}") from error
    return text


class TextParameter(_Parameter):
    """Text that matches a pattern as a whole."""

    type: Literal["text"]
    pattern: Annotated[Text, AfterValidator(_is_pattern)]
    max_chars: Annotated[int, Field(gt=0, le=256)] = 64
    default: Text | None = None

    def tokens(self, name: str, value: ParamValue) -> tuple[str, ...]:
        """Return the argv token of a value, or raise ParameterError."""
        if type(value) is not str or len(value) > self.max_chars or re.fullmatch(self.pattern, value) is None:
            raise _wrong(name, value, f"at most {self.max_chars} characters matching {self.pattern}")
        return (value,)


class CommitParameter(_Parameter):
    """A commit of the history that is sent along, by its full id; its tree is put beside the request's own.

    A client takes any revision and sends the id: a name means another commit on another machine.
    """

    type: Literal["commit"]
    default: None = None

    def tokens(self, name: str, value: ParamValue) -> tuple[str, ...]:
        """Return the argv token of a value, or raise ParameterError."""
        if not is_commit_id(value):
            raise _wrong(name, value, "a full commit id of 40 or 64 hexadecimal digits")
        return (str(value),)


class FlagParameter(_Parameter):
    """A switch: its token when true, nothing when false."""

    type: Literal["flag"]
    token: Annotated[str, Field(pattern="^--[a-z][a-z0-9-]*$")]
    default: bool = False

    def tokens(self, name: str, value: ParamValue) -> tuple[str, ...]:
        """Return the argv tokens of a value, or raise ParameterError."""
        if type(value) is not bool:
            raise _wrong(name, value, "true or false")
        return (self.token,) if value else ()


Valued = IntParameter | FloatParameter | ChoiceParameter | PathParameter | TextParameter | CommitParameter
Parameter = Annotated[Valued | FlagParameter, Field(discriminator="type")]


def is_commit_id(value: object) -> bool:
    """Say whether a value is a full commit id."""
    return type(value) is str and _COMMIT.fullmatch(value) is not None


def bind(declared: Mapping[str, Parameter], given: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
    """Return every declared parameter's value: the given one, else its default; all of them checked.

    Raises:
        ParameterError: unknown, missing, of the wrong type or out of its bounds.
    """
    unknown = sorted(set(given) - set(declared))
    if unknown:
        names = ", ".join(sorted(declared)) or "none"
        raise ParameterError(f"unknown parameter {unknown[0]!r}; this preset knows: {names}")
    bound: dict[str, ParamValue] = {}
    for name, parameter in declared.items():
        value = given.get(name, parameter.default)
        if value is None:
            raise ParameterError(f"parameter {name!r} is missing: {parameter.help}", remedy=f"add -p {name}=VALUE")
        tokens = render(name, parameter, value)
        bound[name] = float(tokens[0]) if isinstance(parameter, FloatParameter) else value
    return bound


def render(name: str, parameter: _Parameter, value: ParamValue) -> tuple[str, ...]:
    """Return the argv tokens of one value.

    Raises:
        ParameterError: of the wrong type, out of its bounds, or it would read as an option.
    """
    tokens = parameter.tokens(name, value)
    if not isinstance(parameter, FlagParameter) and not parameter.allow_dash and tokens[0].startswith("-"):
        raise _wrong(name, value, "a value that does not begin with '-'")
    return tokens


def _wrong(name: str, value: ParamValue, expected: str) -> ParameterError:
    return ParameterError(f"parameter {name!r}: got {str(value)[:64]!r}, expected {expected}")
