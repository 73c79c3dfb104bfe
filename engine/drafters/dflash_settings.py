"""Values out of a DFlash drafter's config.json, each of its kind or refused by its name.

Knows where publishers write a value, and nothing of what it is for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelConfigError

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary types that both backends compute alike and that keep no state."""
LLAMA3_FACTORS = ("low_freq_factor", "high_freq_factor")
UNSAID_POSITIONS = 40960
"""What a drafter is taken to hold whose config does not say."""


@dataclass(frozen=True, slots=True)
class DFlashSettings:
    """Values that stand in ``dflash_config`` or, failing that, at the top level."""

    top: Mapping[str, Any]
    nested: Mapping[str, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> DFlashSettings:
        """Return the settings of a config.

        Raises:
            ModelConfigError: If ``dflash_config`` is no object.
        """
        return cls(config, _object(config, "dflash_config"))

    def read(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default where there is none."""
        value = self.nested.get(name)
        return self.top.get(name, default) if value is None else value

    def required(self, name: str) -> Any:
        """Return a value.

        Raises:
            ModelConfigError: If there is none.
        """
        value = self.read(name)
        if value is None:
            raise ModelConfigError(f"drafter config.json has no {name!r}; expected it in dflash_config or at top level")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a whole number, of any sign.

        Raises:
            ModelConfigError: If there is none and no default, or it is something else.
        """
        value = self.required(name) if default is None else self.read(name, default)
        if type(value) is not int:
            raise ModelConfigError(f"drafter {name} is {value!r}; expected a whole number")
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers.

        Raises:
            ModelConfigError: If there is none, or it is something else.
        """
        values = self.required(name)
        if not isinstance(values, list) or not all(type(value) is int for value in values):
            raise ModelConfigError(f"drafter {name} is {values!r}; expected a list of whole numbers")
        return tuple(values)

    def positive(self, name: str) -> float | None:
        """Return a number above 0, None where there is none.

        Raises:
            ModelConfigError: If it is something else.
        """
        value = self.read(name)
        if value is None:
            return None
        if type(value) not in {int, float} or not 0 < value < math.inf:
            raise ModelConfigError(f"drafter {name} is {value!r}; expected a number above 0")
        return float(value)


def rope(config: Mapping[str, Any]) -> tuple[float, Mapping[str, Any] | None]:
    """Return theta and, where positions are scaled, the scaling entry.

    Raises:
        ModelConfigError: If either is missing something or cannot be honoured.
    """
    nested, scaling = _object(config, "rope_parameters"), _object(config, "rope_scaling")
    theta = DFlashSettings(config, {}).positive("rope_theta") or DFlashSettings(nested, {}).positive("rope_theta")
    if theta is None:
        raise ModelConfigError("drafter config.json has no 'rope_theta'; expected it or rope_parameters.rope_theta")
    if config.get("rope_interleaved") or config.get("rope_is_neox_style") is False:
        raise ModelConfigError("drafter uses interleaved RoPE pairs; expected rotate-half pairs")
    scaled = scaling or nested
    kind = scaled.get("rope_type", scaled.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise ModelConfigError(f"drafter rope type is {kind!r}; expected one of {', '.join(ROPE_TYPES)}")
    if kind == "default":
        return theta, scaling or None
    read = DFlashSettings({name: value for name, value in scaled.items() if value is not None}, {})
    for name in ("factor", *(LLAMA3_FACTORS if kind == "llama3" else ())):
        if read.positive(name) is None:
            raise ModelConfigError(f"drafter rope type {kind!r} has no {name!r}; expected it beside the type")
    if kind == "linear":
        return theta, scaled
    # What is scaled is the context that the config says, unless it tells of an earlier one.
    whole = DFlashSettings(config, {}).whole("max_position_embeddings", UNSAID_POSITIONS)
    original = int(read.positive("original_max_position_embeddings") or whole)
    return theta, {**read.top, "original_max_position_embeddings": original}


def _object(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object of the config, an empty one where there is none, or raise ModelConfigError."""
    value = config.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ModelConfigError(f"drafter {name} is {value!r}; expected an object")
    return value
