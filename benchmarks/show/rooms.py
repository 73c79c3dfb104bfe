"""What the issue on rooms, words and one model of a run promises to show."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.show import source
from benchmarks.show.line import NOT_MEASURED, Line
from benchmarks.show.proofs import proved
from benchmarks.studies.fresh_clone import BEFORE, CI, ENVIRONMENTS
from benchmarks.studies.report import FOLDER, report_of

EVIDENCE = source.ROOT / "docs" / "evidence"
RUN_COMMAND = source.ROOT / "bridge" / "cli" / "mac" / "run.py"


def planted_faults(folder: Path = EVIDENCE) -> str | None:
    """Return how many planted faults the tests found before, after and by the newest list, and which were lost."""
    lists = {"before": "-before", "after": "-after", "now": ""}
    files = {when: folder / f"planted-faults{suffix}.json" for when, suffix in lists.items()}
    reports = {when: json.loads(file.read_bytes()) for when, file in files.items() if file.exists()}
    if not {"before", "after"} <= reports.keys():
        return None
    found = {when: {row["fault"]: row["detected"] for row in report["trials"]} for when, report in reports.items()}
    said = [f"{when}: {sum(one.values())} of {len(one)} tried are found" for when, one in found.items()]
    if "now" in reports:
        said[-1] += f" at {' '.join(sorted({row['commit'][:12] for row in reports['now']['trials']}))}"
    *earlier, last = found.values()
    once = {name for one in earlier for name, detected in one.items() if detected}
    lost = sorted(name for name in once if not last.get(name, True))
    untried = len({name for one in earlier for name in one} - last.keys())
    said.append(f"lost: {', '.join(lost) or 'none'}")
    return "; ".join(said) + (f"; not tried again yet: {untried}" if untried else "")


def fresh_clone(*commands: str, folder: Path = FOLDER) -> str | None:
    """Return what these commands cost in a fresh clone when they were measured last; None before."""
    entries = {entry["case"]: entry for entry in report_of("rooms", "fresh-clone", folder).entries()}
    if not entries.keys() & set(commands):
        return None
    return "; ".join(_cost(entries[one]) if one in entries else f"{one}: {NOT_MEASURED}" for one in commands)


def _cost(entry: dict[str, Any]) -> str:
    (row,) = entry["rows"]
    said = f"{entry['case']}: {row['wall_s']:.0f} s ({row['processor_s']:.0f} s of processor time)"
    if "install_wall_s" in row:
        said += f" after an installation of {row['install_wall_s']:.0f} s"
    return f"{said}, {row['outcome']}, at {entry['commit'][:12]} on {entry['machine']}"


def layers() -> str:
    """Return the contracts of type `layers`."""
    found = source.layer_contracts()
    return f"{len(found)} contracts" + "".join(f"; {name}" for name in found)


def full_rooms() -> str:
    """Return the folders that hold more modules than a room should."""
    over = sorted(source.full_rooms().items(), key=lambda item: -item[1])
    said = ", ".join(f"{folder} {count}" for folder, count in over)
    total = len(source.rooms())
    return f"{len(over)} of {total} folders hold more than {source.ROOM_MAX} modules" + (f": {said}" if over else "")


def circles() -> str:
    """Return the groups of modules that import each other."""
    found = source.circles()
    return f"{len(found)} circles" + "".join(f"; {' - '.join(group)}" for group in found)


def class_names() -> str:
    """Return the class names that several modules define."""
    found = source.class_names_with_two_meanings()
    return f"{len(found)} names" + (f": {', '.join(found)}" if found else "")


def command_imports(path: Path = RUN_COMMAND) -> str | None:
    """Return how many product modules the handler of `kakeya-mac run` imports."""
    if not path.exists():
        return None
    return f"{len(source.imports(path, source.modules()))} modules in {path.relative_to(source.ROOT)}"


def size() -> str:
    """Return the lines of both packages."""
    return ", ".join(f"{package} {source.lines(package):,}" for package in source.PACKAGES)


SHOW = "make show AREA=rooms"
LINES = (
    Line(
        "`make demo`, `make test` in a fresh clone",
        "make studies AREA=rooms",
        partial(fresh_clone, *ENVIRONMENTS, CI),
    ),
    Line("CI's time before and after", "make studies AREA=rooms", partial(fresh_clone, BEFORE, CI)),
    Line(
        "at least 60 planted faults, found before and after the diet: both lists committed, none lost",
        "python -m tests.planted",
        planted_faults,
    ),
    Line("`layers` in every package", SHOW, layers),
    Line("no room over a dozen", SHOW, full_rooms),
    Line("no circle", SHOW, circles),
    Line("no class name with two meanings", SHOW, class_names),
    Line("the successor of `mac_run.py` imports ≤ 12 modules", SHOW, command_imports),
    proved("recovery's table is complete (a test enumerates it)", "rooms", "recovery's table"),
    proved(
        "unchanged: schemas, exit codes, refs, result trees (committed results still verify)",
        "rooms",
        "committed results verify",
    ),
    Line("bridge ≤ 35,000 lines of Python, engine ≤ 17,000", SHOW, size),
)
