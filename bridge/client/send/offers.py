"""Presets that only a host knows: listed in a live runner's beacon, not installed here.

Their parameters are checked by the host alone; here a text becomes what it looks like.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.client.connection.liveness import SeenRunner, look
from bridge.client.connection.session import BusSession
from bridge.client.send.submit import RequestDraft
from bridge.errors import ParameterError, PresetNotFoundError, UsageError
from bridge.limits import EXPIRY_DEFAULT_S, EXPIRY_MAX_S, TEXT_MAX_CHARS
from bridge.presets import registry
from bridge.records import RunnerSelector, Workload
from bridge.records.base import ParamValue
from bridge.records.request import Profile

_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?")
_FLAGS: Final = {"true": True, "false": False}


def offering(session: BusSession, name: str) -> SeenRunner:
    """Return a live runner that lists a preset which is not installed here.

    Raises:
        PresetNotFoundError: none does; the message names what is installed and what runners offer beside it.
    """
    runners = [one for one in look(session.bus, session.record, session.clock.now()) if one.live]
    found = next((one for one in runners if name in one.beacon.presets), None)
    if found is not None:
        return found
    elsewhere = {preset for one in runners for preset in one.beacon.presets}
    raise PresetNotFoundError(name, tuple(sorted({*registry(), *elsewhere})))


def untyped(texts: dict[str, str]) -> dict[str, ParamValue]:
    """Return values for a preset that is not known here: numbers and true/false as such, all else as text.

    Quotes keep a text a text: ``-p id='"12"'``.

    Raises:
        ParameterError: a text that no request may hold.
    """
    return {name: _value(name, text) for name, text in texts.items()}


def wish_for(
    name: str, texts: dict[str, str], profile: Profile, *, workload: Workload | None, runner: RunnerSelector,
    expires_s: float | None,
) -> RequestDraft:  # fmt: skip
    """Return a wish for a preset that is not known here.

    Raises:
        UsageError: the validity is out of bounds.
    """
    valid_s = float(EXPIRY_DEFAULT_S) if expires_s is None else expires_s
    if not 1 <= valid_s <= EXPIRY_MAX_S:
        raise UsageError(f"got --expires {valid_s:g}; expected 1 to {EXPIRY_MAX_S} seconds")
    return RequestDraft(name, untyped(texts), profile, workload=workload, runner=runner, expires_s=valid_s)


def _value(name: str, text: str) -> ParamValue:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = text[1:-1]
    elif text in _FLAGS:
        return _FLAGS[text]
    elif _WHOLE.fullmatch(text):
        return int(text)
    elif _NUMBER.fullmatch(text):
        return float(text)
    if len(text) > TEXT_MAX_CHARS or not text.isprintable():
        raise ParameterError(f"parameter {name!r}: expected one line of at most {TEXT_MAX_CHARS} characters")
    return text
