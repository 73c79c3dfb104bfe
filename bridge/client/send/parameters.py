"""``-p k=v`` texts → typed parameters, by the declarations of the preset or, without it, by their look."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from bridge.errors import ParameterError, meant
from bridge.limits import TEXT_MAX_CHARS
from bridge.presets.model import Preset
from bridge.presets.parameters import FlagParameter, FloatParameter, IntParameter, Parameter
from bridge.records.base import NAME_PATTERN, ParamValue, is_text

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
# Of a double Python prints up to 20 places, as in 0.00012345678901234567, and JavaScript up to 22.
_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,22})?|\.[0-9]{1,22})([eE][+-]?[0-9]{1,3})?")
# Of a preset that is not installed here: only what JSON would take for a number becomes one.
_PLAIN_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?")
_FLAGS = {"true": True, "false": False}
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def split(pairs: Iterable[str]) -> dict[str, str]:
    """Return name → text of ``k=v`` words.

    Raises:
        ParameterError: no ``=``, or a name given twice.
    """
    texts = listed(pairs)
    for name, given in texts.items():
        if len(given) > 1:
            raise ParameterError(f"parameter {name!r} is given twice")
    return {name: given[0] for name, given in texts.items()}


def listed(pairs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return name → texts of ``k=v`` words, in order: several of a name that is given several times.

    Raises:
        ParameterError: no ``=``.
    """
    texts: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark or not name:
            raise ParameterError(f"got -p {pair[:80]!r}; expected -p NAME=VALUE")
        texts[name] = (*texts.get(name, ()), text)
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
            raise ParameterError(
                f"preset {preset.name!r} has no parameter {name!r}; {meant(name, sorted(preset.params))}"
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
            number = "a whole number" if isinstance(parameter, IntParameter) else "a number"
            raise ParameterError(
                f"parameter {name!r}: got {text[:64]!r}, expected {number} from {parameter.min} to {parameter.max}"
            )
        is_whole = isinstance(parameter, IntParameter) and _WHOLE.fullmatch(text) is not None
        return int(text) if is_whole else float(text)
    return _text(name, text)


def untyped(texts: dict[str, str]) -> dict[str, ParamValue]:
    """Return values for a preset that is not known here: numbers and true/false as such, all else as text.

    Quotes keep a text a text: ``-p id='"12"'``.

    Raises:
        ParameterError: a name or a value that no request may hold.
    """
    for name in texts:
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise ParameterError(f"parameter {name[:64]!r}: expected a name of small letters, digits, '.', '_' and '-'")
    return {name: _guessed(name, text) for name, text in texts.items()}


def _guessed(name: str, text: str) -> ParamValue:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    elif text in _FLAGS:
        return _FLAGS[text]
    elif _PLAIN_WHOLE.fullmatch(text):
        return int(text)
    elif _PLAIN_NUMBER.fullmatch(text):
        if not math.isfinite(number := float(text)):
            raise ParameterError(f"parameter {name!r}: got {text[:64]!r}, which overflows a double")
        return number
    return _text(name, text)


def _text(name: str, text: str) -> str:
    """Return a text that a request may hold, whatever a preset's pattern takes."""
    if not is_text(text):
        raise ParameterError(f"parameter {name!r}: expected one line of at most {TEXT_MAX_CHARS} characters")
    return text
