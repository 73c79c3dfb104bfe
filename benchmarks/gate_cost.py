"""What judging costs: `python -m benchmarks.gate_cost`. Prints ratios to json.loads and to plain schema validation.

Also says which heavy modules `import bridge.gate` and a verdict bring in; scipy, pandas, torch and numpy must not be there.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

HEAVY = ("numpy", "scipy", "pandas", "torch", "mlx")


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Return the median processor seconds of a piece of work."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return statistics.median(found)


def main() -> int:
    """Print a line per kind; exit 1 when a heavy module was imported by the gate."""
    import bridge.gate

    loaded = [name for name in HEAVY if name in sys.modules]
    from tests.corpus.gate.breaks import honest

    known = set(sys.modules)
    print(f"{'report':<20}{'bytes':>10}{'json.loads':>12}{'+ schema':>10}{'judge':>10}{'judge / both':>14}")
    for name in ("probe", "suite", "smoke", "claim"):
        case = honest(name)
        files, record, spec = case.files(), case.record_value(), case.spec_value()
        (data,) = files.values()
        value = json.loads(data)
        parse = seconds(lambda data=data: json.loads(data))
        schema = seconds(lambda value=value: _validated(value))
        judged = seconds(lambda: bridge.gate.judge(case.run_id, files, record, spec))
        ratio = judged / (parse + schema)
        print(
            f"{name:<20}{len(data):>10}{parse * 1e3:>10.2f}ms{schema * 1e3:>8.1f}ms{judged * 1e3:>8.1f}ms{ratio:>13.2f}x"
        )
    brought = sorted(name for name in HEAVY if name in set(sys.modules) - known)
    print(f"heavy modules after import: {loaded or 'none'}; brought by judging: {brought or 'none'}")
    return 1 if loaded or brought else 0


def _validated(value: object) -> None:
    """Validate with the plain validator: what a schema alone costs."""
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    from bridge.gate.schemas import document

    registry = Registry().with_resource("report.schema.json", Resource.from_contents(document("report")))
    list(Draft202012Validator(document(value["kind"]), registry=registry).iter_errors(value))


if __name__ == "__main__":
    sys.exit(main())
