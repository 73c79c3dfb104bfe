"""The page of the simulation, and the figures of its bars, both from the committed reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.simulation import campaign, failures
from benchmarks.studies.report import FOLDER, report_of
from benchmarks.studies.study import Row

AREA: Final = "evidence"
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
        held = "met" if self.met else "NOT met"
        return f"{self.text}: {held} in all of {self.cells} cells, worst {self.worst:.5g} ({self.cell})"


def rows(study: str, folder: Path = FOLDER) -> list[Row]:
    """Return the rows of every case of a study that is done."""
    return [row for entry in report_of(AREA, study, folder).entries() for row in entry["rows"]]


def bars(found: Sequence[Row]) -> tuple[Bar, ...]:
    """Return the bars over the cells with Gaussian and t3 launches; none without cells."""
    barred = [row for row in found if row["effect"] in BARRED]
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


def _bar(text: str, found: Sequence[Row], name: str, *, least: float | None = None, most: float | None = None) -> Bar:
    worst = (max if least is None else min)(found, key=lambda row: _share(row, name))
    share = _share(worst, name)
    cell = f"{worst['noise']}, {worst['order']}, {worst['blocks']} blocks, {worst['effect']} {worst['sd'] * 100:.0f} %"
    return Bar(text, share, cell, len(found), (least is None or share >= least) and (most is None or share <= most))


def _share(row: Row, name: str) -> float:
    return float(row[name]) / float(row["runs"])


def done(folder: Path = FOLDER) -> tuple[int, int]:
    """Return how many cases of the simulation are in the report, and how many there are."""
    cases = campaign.cases()
    return len(report_of(AREA, campaign.STUDY.name, folder).done(cases)), len(cases)


def page(folder: Path = FOLDER) -> str:
    """Return `docs/evidence/simulation.md`."""
    found = rows(campaign.STUDY.name, folder)
    count, of = done(folder)
    runs = min((row["runs"] for row in found), default=0)
    lines = [
        "# The rule over launches, simulated",
        "",
        "Generated from [simulation.jsonl](studies/evidence/simulation.jsonl) and",
        "[known-failures.jsonl](studies/evidence/known-failures.jsonl); `make studies AREA=evidence` measures what is",
        f"open. {count} of {of} pairs of noise and order are done, {runs:,} runs or more a cell. Noises:",
        "`benchmarks/simulation/noises.py`; the rule is the product's, `bridge/launches/stopping.py`.",
        "",
        "| bound, Gaussian and t3 launches | worst cell | where | cells | |",
        "|---|---:|---|---:|---|",
        *(
            f"| {bar.text} | {bar.worst:.5g} | {bar.cell} | {bar.cells} | {'met' if bar.met else '**not met**'} |"
            for bar in bars(found)
        ),
        "",
        "Two-mode launches (one in four is slow) have no bound. Below, each row is the worst of twelve noises.",
        "*cover*: the interval printed as 95 % holds the true ratio; *faster*, *slower*: said of equal programs;",
        "*-5 %*: a program that is 5 % slower is called faster; *1.05*, *1.10*: how often an effect of this size",
        "is called faster.",
        "",
        *_table(found),
        "",
        "## Known failures, and what was not taken",
        "",
        *_failures(rows(failures.STUDY.name, folder)),
    ]
    return "\n".join(lines) + "\n"


def _table(found: Sequence[Row]) -> Iterable[str]:
    yield "| order | blocks | launches | sd | count | half-width | cover | faster | slower | -5 % | 1.05 | 1.10 |"
    yield "|---|---|---" + "|---:" * 9 + "|"
    keys = dict.fromkeys((row["order"], row["blocks"], row["effect"], row["sd"]) for row in found)
    for order, blocks, effect, sd in keys:
        cell = [r for r in found if (r["order"], r["blocks"], r["effect"], r["sd"]) == (order, blocks, effect, sd)]
        least = {
            name: min(_share(row, name) for row in cell) for name in ("covered", "faster_at_1_05", "faster_at_1_10")
        }
        most = {
            name: max(_share(row, name) for row in cell)
            for name in ("false_faster", "false_slower", "faster_at_5_slower")
        }
        launches, half = (max(row[name] for row in cell) for name in ("launches", "half_width"))
        shown = [f"{sd * 100:.0f} %", f"{launches:.1f}", f"{half * 100:.1f} %", f"{least['covered']:.3f}"]
        shown += [f"{most[name] * 100:.2f} %" for name in ("false_faster", "false_slower")]
        shown += [f"{most['faster_at_5_slower'] * 100:.3f} %"]
        shown += [f"{least[name]:.2f}" for name in ("faster_at_1_05", "faster_at_1_10")]
        yield f"| {order} | {blocks} | {effect} | {' | '.join(shown)} |"


def _failures(found: Sequence[Row]) -> Iterable[str]:
    yield "| case | runs | cover | faster | slower | else |"
    yield "|---|---:|---:|---:|---:|---|"
    for row in found:
        shares = (f"{_share(row, 'covered'):.3f}" if "covered" in row else "",)
        shares += tuple(
            f"{_share(row, name) * 100:.2f} %" if name in row else "" for name in ("false_faster", "false_slower")
        )
        yield f"| {row['name']} | {row['runs']:,} | {' | '.join(shares)} | {_rest(row)} |"


def _rest(row: Row) -> str:
    said = []
    if "two_runs_agree" in row:
        said.append(f"two runs agree in {_share(row, 'two_runs_agree'):.2f}")
    if "sittings_as_units" in row:
        said.append(f"sittings are the units in {_share(row, 'sittings_as_units'):.2f}")
    if row.get("width_reached") and "covered_of_those_that_reached" in row:
        share = row["covered_of_those_that_reached"] / row["width_reached"]
        said.append(f"{row['launches']:.1f} launches, cover {share:.3f} where the width was reached")
    if "false_faster_corrected" in row:
        said.append(f"faster after the correction {_share(row, 'false_faster_corrected') * 100:.2f} %")
    if "false_faster_dropped" in row:
        share = _share(row, "false_faster_dropped") * 100
        said.append(f"{row['cancelled']} cancelled; faster {share:.2f} % if their launches were dropped")
    return "; ".join(said)
