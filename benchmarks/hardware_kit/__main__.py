"""Read what this Mac or GPU box says of itself, run the hardware tests, and write one file to commit.

`make hardware-kit MINUTES=15`, in a clone on the machine: nothing is changed, nothing is sent anywhere, and it ends in
that time, from 6 minutes on. What the engine does there is measured first, row by row into a file beside; the hardware
tests get what time is left. The files hold no name of the machine, its users, their folders or programs, and no serial
number; look at them before you commit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.hardware_kit.bundle import ROOT, TESTS, TESTS_S, make, name_of, written
from benchmarks.hardware_kit.measuring import Row
from benchmarks.hardware_kit.private import cleaned, names_of_this_machine
from benchmarks.hardware_kit.rows import append, commands, installed_backends, measure

LEAST_MINUTES, LONGEST_MINUTES = 6, 120
ENDING_S = 20.0
"""What writing the bundle may take behind the tests."""
MEASURING_SHARE = 0.7
"""Of the time: what measuring gets before the hardware tests."""
FOLDER = ROOT / "docs" / "evidence" / "hardware"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the bundle; 1 when a hardware test failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hardware_kit", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the bundle (default: %(default)s)")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="run these tests instead of all")
    parser.add_argument(
        "--minutes",
        type=int,
        default=15,
        help=f"time in all, {LEAST_MINUTES} to {LONGEST_MINUTES}; 0 measures nothing (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.minutes and not LEAST_MINUTES <= options.minutes <= LONGEST_MINUTES:
        parser.error(f"--minutes {options.minutes}; expected {LEAST_MINUTES} to {LONGEST_MINUTES}, or 0 for no rows")
    began, names = time.monotonic(), names_of_this_machine()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    unfinished = options.out / "rows-of-this-machine.jsonl"
    if options.minutes:
        unfinished.unlink(missing_ok=True)
        seconds = 60 * options.minutes * MEASURING_SHARE
        measuring = measure(commands(installed_backends()), seconds, lambda text: cleaned(text, names))
        rows = append(unfinished, measuring)
        print(f"measured {len(rows)} rows in {time.monotonic() - began:.0f} s: {unfinished}", flush=True)
    left_s = 60 * options.minutes - (time.monotonic() - began) - ENDING_S if options.minutes else TESTS_S
    bundle = make(options.tests, left_s) | {"rows": rows}
    text = written(bundle, names)
    path = options.out / name_of(bundle)
    path.write_text(text, encoding="utf-8")
    unfinished.unlink(missing_ok=True)
    for name, why in bundle["absent"].items():
        print(f"absent   {name}: {why}")
    outcomes = Counter(test["outcome"] for test in bundle["tests"])
    for why, count in Counter(test["why"] for test in bundle["tests"] if test["outcome"] == "skipped").items():
        print(f"skipped  {count} tests: {why}")
    print(f"tests    {', '.join(f'{count} {outcome}' for outcome, count in sorted(outcomes.items())) or 'none ran'}")
    print(f"bundle   {path}: look at it, then commit it")
    return 1 if outcomes["failed"] or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
