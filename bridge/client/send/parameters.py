"""``-p k=v`` texts → typed parameters, by what the preset declares."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bridge.errors import ParameterError
from bridge.presets import Preset
from bridge.presets.parameters import FlagParameter, FloatParameter, IntParameter, Parameter
from bridge.records.base import ParamValue

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?")
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def split(pairs: Iterable[str]) -> dict[str, str]:
    """Return name → text of ``k=v`` words.

    Raises:
        ParameterError: no ``=``, or a name given twice.
    """
    texts: dict[str, str] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise ParameterError(
                f"got -p {pair[:80]!r}; expected -p NAME=VALUE", remedy="kakeya-mac presets show PRESET lists the names"
            )
        if name in texts:
            raise ParameterError(f"parameter {name!r} is given twice")
        texts[name] = text
    return texts


def typed(preset: Preset, texts: dict[str, str]) -> dict[str, ParamValue]:
    """Return the values of the given parameters, typed as the preset declares them; bounds are checked by `bind`.

    Raises:
        ParameterError: unknown name, or a text that is no value of its type.
    """
    values: dict[str, ParamValue] = {}
    for name, text in texts.items():
        parameter = preset.params.get(name)
        if parameter is None:
            known = ", ".join(sorted(preset.params)) or "none"
            raise ParameterError(
                f"preset {preset.name!r} has no parameter {name!r}; it has: {known}",
                remedy=f"kakeya-mac presets show {preset.name}",
            )
        values[name] = _value(name, parameter, text)
    return values


def _value(name: str, parameter: Parameter, text: str) -> ParamValue:
    if isinstance(parameter, FlagParameter):
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ParameterError(f"parameter {name!r}: got {text[:64]!r}, expected true or false")
    if isinstance(parameter, IntParameter | FloatParameter):
        # Python's own int() and float() would take "1_0", full-width digits and spaces.
        if _NUMBER.fullmatch(text) is None:
            raise ParameterError(f"parameter {name!r}: got {text[:64]!r}, expected a number")
        is_whole = isinstance(parameter, IntParameter) and _WHOLE.fullmatch(text) is not None
        return int(text) if is_whole else float(text)
    return text
