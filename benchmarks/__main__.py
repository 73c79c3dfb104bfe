"""Run benchmarks and print one JSON document; needs a machine on which nothing else runs."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys

NAMES = ("startup", "bus_overhead", "gate_cost")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(NAMES)} (default: all)")
    names = parser.parse_args().names or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; known: {', '.join(NAMES)}")
    machine = {"machine": platform.machine(), "system": platform.platform(), "python": platform.python_version()}
    results = {name: importlib.import_module(f"benchmarks.{name}").measure() for name in names}
    print(json.dumps({"host": machine, "results": results}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
