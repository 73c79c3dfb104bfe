"""What judging costs: `python -m benchmarks.quick.gate_cost`. Prints ratios to json.loads plus plain schema validation.

Also says which heavy modules the gate and a verdict bring in; numpy, scipy, pandas and torch must not be among them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from benchmarks.quick.figures import Figure

RECOMPUTED = "recompute.json"
HEAVY = ("numpy", "scipy", "pandas", "torch", "mlx")


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Return the median processor seconds of a piece of work."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times)


def measure(repeats: int = 7) -> list[Figure]:
    """Return, per kind of report, what judging costs beside parsing and plain schema validation."""
    gate = import_module("bridge.gate.judging")
    honest = import_module("tests.corpus.gate.breaks").honest
    figures = []
    for name in ("probe", "suite", "smoke", "claim"):
        data, parse, schema, judged = _costs(gate, honest(name), repeats)
        figures += [
            Figure(f"judge {name} ({len(data)} bytes)", round(judged * 1e3, 2), "ms"),
            Figure(f"judge {name} to parse and validate", round(judged / (parse + schema), 2), "ratio"),
        ]
    return figures


def main() -> int:
    """Print a line per kind; exit 1 when a heavy module was imported by the gate."""
    gate = import_module("bridge.gate.judging")
    loaded = [name for name in HEAVY if name in sys.modules]
    honest = import_module("tests.corpus.gate.breaks").honest
    before = set(sys.modules)
    print(f"{'report':<12}{'bytes':>10}{'json.loads':>13}{'schema':>12}{'judge':>12}{'judge / both':>14}")
    for name in ("probe", "suite", "smoke", "claim"):
        _row(gate, name, honest(name))
    brought = sorted(name for name in HEAVY if name in set(sys.modules) - before)
    print(f"heavy modules after import: {loaded or 'none'}; brought by judging: {brought or 'none'}")
    return 1 if loaded or brought else 0


def _costs(gate: Any, case: Any, repeats: int) -> tuple[bytes, float, float, float]:
    """Return a report's bytes and the seconds of parsing and validating it, and of judging all that came with it."""
    files, record, spec = case.files(), case.record_value(), case.spec_value()
    data = next(data for name, data in files.items() if name != RECOMPUTED)
    value = json.loads(data)
    parse = seconds(lambda: json.loads(data), repeats)
    schema = seconds(lambda: _validated(value), repeats)
    return data, parse, schema, seconds(lambda: gate.judge(case.run_id, files, record, spec), repeats)


def _row(gate: Any, name: str, case: Any) -> None:
    data, parse, schema, judged = _costs(gate, case, 7)
    times = "".join(f"{spent * 1e3:>10.2f}ms" for spent in (parse, schema, judged))
    print(f"{name:<12}{len(data):>10} {times}{judged / (parse + schema):>13.2f}x")


def _validated(value: Any) -> None:
    """Validate with the plain validator: what a schema alone costs."""
    document = import_module("bridge.gate.reports.schema").document
    registry: Any = Registry().with_resource("report.schema.json", Resource.from_contents(document("report")))
    list(Draft202012Validator(document(value["kind"]), registry=registry).iter_errors(value))


if __name__ == "__main__":
    sys.exit(main())
