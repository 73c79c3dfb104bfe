"""Several questions to one data set: Holm's step-down adjustment (Scandinavian Journal of Statistics 6, 1979)."""

from __future__ import annotations

from collections.abc import Mapping


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return the adjusted p-value of each question."""
    adjusted: dict[str, float] = {}
    worst, count = 0.0, len(p_values)
    for rank, name in enumerate(sorted(p_values, key=lambda key: (p_values[key], key))):
        worst = max(worst, min(1.0, (count - rank) * p_values[name]))
        adjusted[name] = worst
    return adjusted
