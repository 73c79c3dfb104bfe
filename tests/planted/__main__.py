"""Plant every fault in turn and report which test found it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.planted import reports, rooms, trial
from tests.planted.fault import Fault, faults
from tests.planted.tree import Tree


def main(argv: list[str]) -> int:
    """Run the trials that the report lacks; exit 1 when a fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults only")
    parser.add_argument("--room", choices=sorted(rooms.STAGES), help="faults of this room only")
    parser.add_argument("--commit", default="HEAD", help="where to plant; the table is this checkout's")
    parser.add_argument("--report", type=Path, default=reports.NEWEST, help="what is in it is not tried again")
    parser.add_argument("--clean", action="store_true", help="run each room's first tests without any fault instead")
    options = parser.parse_args(argv)
    table = faults()
    chosen = [f for f in table if (not options.only or f.name in options.only) and options.room in {None, f.room}]
    unknown = set(options.only or ()) - {f.name for f in table}
    if unknown or not chosen:
        parser.error(f"no fault is named {', '.join(sorted(unknown)) or 'so'}; see tests/planted/faults")
    report = reports.load(options.report)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Tree(Path(folder).resolve() / "kakeya", options.commit)
        if options.clean:
            return _clean(tree, chosen, report, options.report)
        return _trials(tree, chosen, report, options.report)


def _trials(tree: Tree, chosen: list[Fault], report: dict[str, Any], file: Path) -> int:
    done = {row["fault"] for row in report["trials"]}
    finders = reports.finders()
    first = {test for fault in chosen if fault.name not in done for test in rooms.named(fault, tree.folder, finders)}
    passing = trial.passing(tree, sorted(first))
    for number, fault in enumerate(chosen, 1):
        if fault.name in done:
            continue
        row = trial.trial(tree, fault, finders.get(fault.name, ()), passing) | {"commit": tree.commit}
        report["trials"].append(row)
        reports.save(file, report)
        finder = row["by"] if row["detected"] else "NOT FOUND"
        print(f"{number} of {len(chosen)} {fault.name}: {finder} ({row['stage']}, {row['seconds']} s)", flush=True)
    names = {fault.name for fault in chosen}
    lost = [row["fault"] for row in report["trials"] if row["fault"] in names and not row["detected"]]
    print(f"{len(chosen) - len(lost)} of {len(chosen)} found" + (f"; not found: {', '.join(lost)}" if lost else ""))
    return 1 if lost else 0


def _clean(tree: Tree, chosen: list[Fault], report: dict[str, Any], file: Path) -> int:
    red = 0
    for room in sorted({fault.room for fault in chosen} - set(report["clean"])):
        began = time.monotonic()
        paths = rooms.clean(room, [fault for fault in chosen if fault.room == room], tree.folder)
        outcome = trial.call(tree, paths, workers=2)
        summary = outcome.output.strip().splitlines()[-1].strip("= ") if outcome.code is not None else "took too long"
        print(f"{room} without a fault: {summary}", flush=True)
        if outcome.code == 0:
            took = {"seconds": round(time.monotonic() - began, 1), "commit": tree.commit}
            report["clean"][room] = {"tests": paths, "said": summary} | took
            reports.save(file, report)
        else:
            red += 1
            print(outcome.output[-2000:], file=sys.stderr)
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
