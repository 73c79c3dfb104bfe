"""What the words of a runner's telemetry mean: fit, bad, or unknown."""

from __future__ import annotations

import re
from typing import Final, Literal

State = Literal["fit", "bad", "unknown"]
HOT_C: Final = 95.0
SPEED_LIMIT_MIN: Final = 100.0
PRESSURE_MAX: Final = 10.0  # per cent of ten seconds in which something waited for memory
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def assess(name: str, value: str) -> State:
    """Return what a value of `thermal`, `power` or `memory_pressure` says; a word that is not known is unknown."""
    number = _NUMBER.search(value)
    amount = float(number.group()) if number else None
    if name == "power":
        return {"mains": "fit", "battery": "bad"}.get(value, "unknown")  # type: ignore[return-value]
    if name == "thermal":
        if value in {"nominal", "no thermal warning"}:
            return "fit"
        if value.startswith("cpu speed limit") and amount is not None:
            return "fit" if amount >= SPEED_LIMIT_MIN else "bad"
        if value.startswith("hottest sensor") and amount is not None:
            return "fit" if amount < HOT_C else "bad"
        return "bad" if value in {"fair", "serious", "critical"} else "unknown"
    if value.startswith("some ") and amount is not None:
        return "fit" if amount <= PRESSURE_MAX else "bad"
    return {"normal": "fit", "warning": "bad", "critical": "bad"}.get(value, "unknown")  # type: ignore[return-value]
