"""The line that every issue ends in: what its own tests add to `make test`, by the committed measurement."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.show.line import Line
from benchmarks.studies.own_tests import CORES, NAME, case
from benchmarks.studies.report import FOLDER, report_of

MOST_NAMED = 2  # of the files that take longest


def adds(area: str, most_s: int = 30) -> Line:
    """Return an area's line on its own tests, promised to take at most so many seconds."""
    text = f"its own tests add at most {most_s} s to `make test`"
    return Line(text, f"make studies AREA={area} STUDY={NAME}", partial(added, area))


def added(area: str, folder: Path = FOLDER) -> str | None:
    """Return the newest measurement of the files that are the area's today, None while there is none."""
    rows = [entry["rows"][0] for entry in report_of(area, NAME, folder).entries() if entry["case"] == case(area)]
    if not rows:
        return None
    row = rows[-1]
    slowest = sorted(((one["processor s"], name) for name, one in row["files"].items()), reverse=True)[:MOST_NAMED]
    most = ", ".join(f"{name} {spent_s:g} s" for spent_s, name in slowest)
    return (
        f"{row['processor s']:g} s of processor time, so {row['processor s'] / CORES:.1f} s on {CORES} cores: "
        f"{row['tests']} tests in {len(row['files'])} files, "
        f"{row['start, imports and collection, processor s']:g} s of it start, imports and collection; most: {most}"
    )
