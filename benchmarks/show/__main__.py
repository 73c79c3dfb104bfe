"""Print what an area's issue promises to show: `make show AREA=...`, or `python -m benchmarks.show AREA`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.areas import area
from benchmarks.show.line import NOT_MEASURED, Line
from benchmarks.show.registry import LINES


def show(name: str, lines: Sequence[Line]) -> None:
    """Print each line with its figure and command; a line nobody measured says so."""
    print(name)
    if not lines:
        print("  no lines yet")
    for line in lines:
        figure = line.figure()
        print(f"- {line.text}\n    {NOT_MEASURED if figure is None else figure}\n    $ {line.command}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lines of the area that is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.show", description=__doc__)
    parser.add_argument("area", type=area, metavar="AREA")
    name = parser.parse_args(arguments).area
    show(name, LINES[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
