"""What the issue on workloads promises to show: one line a sentence."""

from __future__ import annotations

from benchmarks.show.line import Line
from benchmarks.studies.workload_mutations import PER_CASE, SEEDS
from bridge.presets.workloads.problems import INTERVAL_LEAST
from tests.unit.bridge.presets.test_workload_mistakes import MISTAKES

TUTORIAL = "python -m pytest -n 0 -q tests/integration/client/test_workload_tutorial.py"
GATE = "python -m pytest -n 0 -q tests/unit/bridge/gate/test_workloads.py"
MISTAKEN = "python -m pytest -n 0 -q tests/unit/bridge/presets/test_workload_mistakes.py"


def planted() -> str:
    """Return how many mistakes are planted."""
    return f"{len(MISTAKES)} mistakes of a folder, each one line with a remedy, before anything runs"


def seeds() -> str:
    """Return the fewest repeats with an interval."""
    return f"{INTERVAL_LEAST} repeats: the range covers the median in {100 * (1 - 2 / 2**INTERVAL_LEAST):.1f} %"


def mutations() -> str:
    """Return how many mutations the study makes."""
    return f"{SEEDS * sum(PER_CASE.values()):,} mutations in {SEEDS * len(PER_CASE)} cases; not run in full here"


LINES = (
    Line("own train.py: exit 0, metric with unit and interval on the first screen, reported by", TUTORIAL, seeds),
    Line("with the example's recompute: recomputed", TUTORIAL),
    Line("a loss written as a constant is never citable", GATE),
    Line(">= 25 planted mistakes, a line and a remedy each, before anything is pushed or run", MISTAKEN, planted),
    Line("a planted 10 % slow-down is slower, an identical build is not, a sleeping baseline is seen by wait4", GATE),
    Line("--against main does the same for a planted commit", "not built as a test; see docs/guides/workloads.md"),
    Line("a requester who never saw the host sees name, parameters, bounds, metrics", "kakeya-mac presets show PRESET"),
    Line("a changed definition is said at run and in compare", "not built as a test"),
    Line("mutation of definitions and reports (>= 100,000): no traceback", "make studies AREA=workloads", mutations),
    Line("no line of bridge/{runner,executor,client,bus,cli} names an engine kind",
         "python -m pytest -n 0 -q tests/unit/bridge/test_workload_words.py"),
)  # fmt: skip
