"""The bounds that the design sets on the simulated rule, and whether every cell keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.studies.study import Row

BARRED: Final = ("Gaussian", "t3")
COVERAGE: Final = 0.94
FALSE: Final = 0.005
SLOWER_FASTER: Final = 1e-4
POWER: Final = 0.90
POWER_SD: Final = 0.06


@dataclass(frozen=True)
class Bar:
    """A bound of the design, the worst cell against it, and whether it holds in every cell."""

    text: str
    worst: float
    cell: str
    cells: int
    met: bool

    def __str__(self) -> str:
        """Return it in one line."""
        outcome = "met" if self.met else "NOT met"
        return f"{self.text}: {outcome} in all of {self.cells} cells, worst {self.worst:.5g} ({self.cell})"


def bars(cells: Sequence[Row]) -> tuple[Bar, ...]:
    """Return the bars over the cells with Gaussian and t3 launches; none without cells."""
    barred = [row for row in cells if row["effect"] in BARRED]
    powered = [row for row in barred if row["order"] == "turns" and row["sd"] <= POWER_SD]
    if not powered:
        return ()
    return (
        _bar("coverage at least .94", barred, "covered", least=COVERAGE),
        _bar("false faster at most .5 %", barred, "false_faster", most=FALSE),
        _bar("false slower at most .5 %", barred, "false_slower", most=FALSE),
        _bar("5 % slower called faster in at most 1 of 10,000", barred, "faster_at_5_slower", most=SLOWER_FASTER),
        _bar("power at 1.10 at least 90 %, turns, launch sd up to 6 %", powered, "faster_at_1_10", least=POWER),
    )


def _bar(text: str, cells: Sequence[Row], name: str, *, least: float | None = None, most: float | None = None) -> Bar:
    worst = (max if least is None else min)(cells, key=lambda row: share(row, name))
    value = share(worst, name)
    cell = f"{worst['noise']}, {worst['order']}, {worst['blocks']} blocks, {worst['effect']} {worst['sd'] * 100:.0f} %"
    return Bar(text, value, cell, len(cells), (least is None or value >= least) and (most is None or value <= most))


def share(row: Row, name: str) -> float:
    """Return in which share of its simulated runs a cell had something happen."""
    return float(row[name]) / float(row["runs"])
