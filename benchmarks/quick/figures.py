"""What a benchmark found: figures with units, targets where there are any; as a table for people.

Knows nothing about how a figure was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One number.

    Attributes:
        unit: ``ms``, ``ratio``, ``bytes``, ``pushes``.
        at_most: the target, or None for a figure that is only reported.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met, None without one."""
        return None if self.at_most is None else self.value <= self.at_most

    def data(self) -> dict[str, Any]:
        """Return it as it stands in the JSON document."""
        plain = asdict(self)
        return (
            plain | {"met": self.met} if self.at_most is not None else {k: plain[k] for k in ("name", "value", "unit")}
        )


def markdown(results: Mapping[str, Iterable[Figure]]) -> str:
    """Return all figures as one table."""
    lines = ["| benchmark | figure | value | target |", "|---|---|---:|---|"]
    for name, figures in results.items():
        for figure in figures:
            target = (
                ""
                if figure.at_most is None
                else f"at most {figure.at_most:g} {'' if figure.met else '**missed**'}".strip()
            )
            lines.append(f"| {name} | {figure.name} | {figure.value:g} {figure.unit} | {target} |")
    return "\n".join(lines)
