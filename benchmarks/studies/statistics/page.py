"""The page of the simulation, from the committed reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.studies.report import FOLDER, report_of
from benchmarks.studies.statistics import campaign, failures, standing
from benchmarks.studies.statistics.bars import bars, share
from benchmarks.studies.study import Row

FAILURE_RUNS = 40_000
COVERING = ("covered", "next_inside", "another_day_inside")
"""What a sitting's intervals are counted by."""


def rows(study: str, folder: Path = FOLDER) -> list[Row]:
    """Return the rows of every case of a study that is done."""
    return [row for entry in report_of(study, folder).entries() for row in entry["rows"]]


def done(folder: Path = FOLDER) -> tuple[int, int]:
    """Return how many cases of the simulation are in the report, and how many there are."""
    cases = campaign.cases()
    return len(report_of(campaign.STUDY.name, folder).done(cases)), len(cases)


def page(folder: Path = FOLDER) -> str:
    """Return `docs/evidence/simulation.md`."""
    cells = rows(campaign.STUDY.name, folder)
    count, of = done(folder)
    runs = min((row["runs"] for row in cells), default=0)
    lines = [
        "# The rule over launches, simulated",
        "",
        "Generated from [simulation.jsonl](studies/simulation.jsonl) and",
        "[known-failures.jsonl](studies/known-failures.jsonl);",
        '`make studies STUDY="simulation known-failures"` measures what is open.',
        f"{count} of {of} pairs of noise and order are done, {runs:,} runs or more a cell. Noises:",
        "`benchmarks/studies/statistics/noises.py`; the rule is the product's, `bridge/launches/stopping.py`.",
        "",
        "| bound, Gaussian and t3 launches | worst cell | where | cells | |",
        "|---|---:|---|---:|---|",
        *(
            f"| {bar.text} | {bar.worst:.5g} | {bar.cell} | {bar.cells} | {'met' if bar.met else '**not met**'} |"
            for bar in bars(cells)
        ),
        "",
        "Two-mode launches (one in four is slow) have no bound: the worst of theirs covers in",
        f"{_two_mode(cells):.3f}. Every cell is in the report.",
        "",
        "## Known failures, and what was not taken",
        "",
        "*cover*: the interval printed as 95 % holds the true ratio, *reached*: among runs that reached the width;",
        f"*faster*, *slower*: said of equal programs. {FAILURE_RUNS:,} runs a row but where it says otherwise.",
        "[claim-choices.jsonl](studies/claim-choices.jsonl) has what else was tried before a claim was chosen.",
        "",
        *_failures(rows(failures.STUDY.name, folder)),
        "",
        "## Standing claims",
        "",
        *_standing(rows(standing.STUDY.name, folder)),
    ]
    return "\n".join(lines) + "\n"


def _two_mode(cells: Sequence[Row]) -> float:
    """Return the least coverage of cells whose launches have two modes; nan where none of them is done."""
    return min((share(row, "covered") for row in cells if row["effect"] == "two-mode"), default=float("nan"))


def _failures(cells: Sequence[Row]) -> Iterable[str]:
    yield "| case | cover | faster | slower | else |"
    yield "|---|---:|---:|---:|---|"
    for row in cells:
        shares = [f"{share(row, 'covered'):.3f}" if "covered" in row else ""]
        shares += [
            f"{share(row, name) * 100:.2f} %" if name in row else "" for name in ("false_faster", "false_slower")
        ]
        name = row["name"] + ("" if row["runs"] == FAILURE_RUNS else f" ({row['runs']:,} runs)")
        yield f"| {name} | {' | '.join(shares)} | {_rest(row)} |"


def _standing(cells: Sequence[Row]) -> Iterable[str]:
    runs = min((row["runs"] for row in cells), default=0)
    sd = f"{standing.LAUNCH_SD * 100:.0f} %"
    yield f"From [standing-claims.jsonl](studies/standing-claims.jsonl): {runs:,} runs a cell, {standing.LAUNCHES}"
    yield f"launches a sitting that differ by {sd}; each column has {'/'.join(map(str, standing.SITTINGS))} sittings,"
    alike = [share(row, name) for row in cells if row["sd"] == 0 for name in COVERING]
    yield "and half-widths behind ±. Where sittings do not differ at all, each covers in"
    yield f"{min(alike):.3f} and more." if alike else "no cell yet."
    yield "*cover*: the interval of the ratio holds the truth; *next*: the prediction holds the sitting that follows;"
    yield "*another day*: it holds one that shares nothing with them. In bold, as known failures: what covers less than"
    yield f"{standing.FAILURE:.2f}."
    yield ""
    yield from (f"- {line}" for line in _required(cells))
    yield ""
    yield "| sittings differ by | cover | next | another day |"
    yield "|---|---:|---:|---:|"
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in cells:
        if row["sd"]:
            groups.setdefault((row["noise"], row["sd"]), []).append(row)
    for (noise, spread), group in groups.items():
        cover = f"{_shares(group, 'covered')} ±{_widths(group, 'half_width')}"
        following = f"{_shares(group, 'next_inside')} ±{_widths(group, 'next_half_width')}"
        yield f"| {noise}, {spread * 100:.0f} % | {cover} | {following} | {_shares(group, 'another_day_inside')} |"


def _required(cells: Sequence[Row]) -> Iterable[str]:
    names = " and ".join(standing.REQUIRED)
    yield f"{names}, claim: {standing.required(cells, 'covered')}"
    yield f"{names}, next sitting: {standing.required(cells, 'next_inside')}"
    failing = [f"{noise} (down to {least:.2f})" for noise, least in standing.known_failures(cells).items()]
    yield f"known failures: {', '.join(failing) or 'none'}"


def _shares(group: Sequence[Row], name: str) -> str:
    shares = [share(row, name) for row in group]
    return "/".join(f"{part:.3f}" if part >= standing.FAILURE else f"**{part:.3f}**" for part in shares)


def _widths(group: Sequence[Row], name: str) -> str:
    return "/".join(f"{row[name] * 100:.1f}" for row in group) + " %"


def _rest(row: Row) -> str:
    notes = []
    if "two_runs_agree" in row:
        notes.append(f"two runs agree in {share(row, 'two_runs_agree'):.2f}")
    if "sittings_as_units" in row:
        notes.append(f"sittings are the units in {share(row, 'sittings_as_units'):.2f}")
    if row.get("width_reached") and "covered_of_those_that_reached" in row:
        reached = row["covered_of_those_that_reached"] / row["width_reached"]
        notes.append(f"{row['launches']:.1f} launches, {reached:.3f} reached")
    if "false_faster_corrected" in row:
        notes.append(f"faster after the correction {share(row, 'false_faster_corrected') * 100:.2f} %")
    if "false_faster_dropped" in row:
        dropped = share(row, "false_faster_dropped") * 100
        notes.append(f"{row['cancelled']} cancelled; faster {dropped:.2f} % if their launches were dropped")
    return "; ".join(notes)
