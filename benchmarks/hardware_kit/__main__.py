"""Read what this Mac or GPU box says of itself, run the hardware tests, and write one file to commit.

`make hardware-kit`, in a clone on the machine: a few minutes, nothing is changed, nothing is sent anywhere. The file
holds no name of the machine, its users, their folders or programs, and no serial number; look at it before you commit.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.hardware_kit.bundle import ROOT, TESTS, make, name_of, written
from benchmarks.hardware_kit.private import names_of_this_machine

FOLDER = ROOT / "docs" / "evidence" / "hardware"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the bundle; 1 when a hardware test failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hardware_kit", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the bundle (default: %(default)s)")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="run these tests instead of all")
    options = parser.parse_args(arguments)
    bundle = make(options.tests)
    text = written(bundle, names_of_this_machine())
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / name_of(bundle)
    path.write_text(text, encoding="utf-8")
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
