"""Run benchmarks and print one JSON document; needs a machine on which nothing else runs.

`python -m benchmarks --out docs/evidence/benchmarks.json` makes the committed document again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from pathlib import Path

from benchmarks.quick.figures import Figure, markdown
from bridge.system.clock import SystemClock, rfc3339

BENCHMARKS = {
    "startup": "start of the three programs beside a bare interpreter",
    "bus_overhead": "the bus's calls beside the same steps in plain git",
    "overhead": "a whole run through client and runner beside plain git",
    "polling": "a look at a bus of ten thousand requests beside one of ten",
    "cancel": "from a cancel to the last process beside killing the process group",
    "names_proxy": "a download and a connection through the proxy of a run by names beside direct ones",
    "pushes": "pushes of a runner on a hosted remote, counted over simulated time",
    "gate_cost": "judging each kind of report beside parsing it",
    "attestation": "signing and verifying a result beside hashing it",
    "loop_overhead": "the decode loop beside the calls it makes",
}
"""What each measures; seconds to a few minutes each."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="\n".join(f"{name}: {about}" for name, about in BENCHMARKS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which (default: all)")
    parser.add_argument("--repeats", type=int, default=15, help="turns of each interleaved run (default: 15)")
    parser.add_argument("--markdown", action="store_true", help="print a table instead of JSON")
    parser.add_argument("--out", type=Path, help="write the JSON document here and print the table")
    arguments = parser.parse_args()
    names = arguments.names or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    host: dict[str, object] = {
        "machine": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "started": rfc3339(SystemClock().now()),
    }
    results: dict[str, list[Figure]] = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results[name] = importlib.import_module(f"benchmarks.quick.{name}").measure(arguments.repeats)
    host["load_after"] = [round(load, 2) for load in os.getloadavg()]
    document = {
        "command": " ".join(["python -m benchmarks", *names, f"--repeats {arguments.repeats}"]),
        "host": host,
        "results": {name: [figure.data() for figure in figures] for name, figures in results.items()},
    }
    text = json.dumps(document, indent=2) + "\n"
    if arguments.out is not None:
        fresh = arguments.out.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(arguments.out)
    print(markdown(results) if arguments.markdown or arguments.out else text.rstrip("\n"))
    missed = [
        f"{name}: {figure.name}" for name, figures in results.items() for figure in figures if figure.met is False
    ]
    for miss in missed:
        print(f"target missed: {miss}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
