"""What the words of a runner's telemetry mean: fit, bad, or unknown."""

from __future__ import annotations

import re
from typing import Final, Literal

State = Literal["fit", "bad", "unknown", "strange"]
HOT_C: Final = 95.0
SPEED_LIMIT_MIN: Final = 100.0
PRESSURE_MAX: Final = 10.0  # per cent of ten seconds in which something waited for memory
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def assess(name: str, value: str) -> State:
    """Return what a value of `thermal`, `power` or `memory_pressure` says; `strange` is no word of that measure."""
    if value == "unknown":
        return "unknown"
    number = _NUMBER.search(value)
    amount = float(number.group()) if number else None
    return {"power": _power, "thermal": _thermal, "memory_pressure": _pressure}[name](value, amount)


def _power(value: str, _amount: float | None) -> State:
    if value == "mains":
        return "fit"
    return "bad" if value == "battery" else "strange"


def _thermal(value: str, amount: float | None) -> State:
    if value.startswith("cpu speed limit") and amount is not None:
        return "fit" if amount >= SPEED_LIMIT_MIN else "bad"
    if value.startswith("hottest sensor") and amount is not None:
        return "fit" if amount < HOT_C else "bad"
    return "fit" if value in {"nominal", "no thermal warning"} else "strange"


def _pressure(value: str, amount: float | None) -> State:
    if value.startswith("some ") and amount is not None:
        return "fit" if amount <= PRESSURE_MAX else "bad"
    if value in {"warning", "critical"}:
        return "bad"
    return "fit" if value == "normal" else "strange"
