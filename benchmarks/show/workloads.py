"""What the issue on workloads promises to show: one line a sentence."""

from __future__ import annotations

import subprocess
from collections import Counter

from benchmarks.show.identity import ran
from benchmarks.show.line import Line
from benchmarks.show.source import ROOT
from benchmarks.studies import ratios, served_examples, workload_mutations
from benchmarks.studies.report import report_of
from benchmarks.studies.study import Row
from bridge.gate import MeasuredRun, compare, judge
from bridge.gate.declared.kind import kinds
from bridge.presets.workloads.problems import INTERVAL_LEAST
from tests.corpus.gate.builders import Case
from tests.corpus.gate.workloads import trained
from tests.unit.bridge.presets.test_workload_mistakes import MISTAKES

PYTEST = "python -m pytest -n 0 -q"
TUTORIAL = f"{PYTEST} tests/integration/client/test_workload_tutorial.py"
GATE = f"{PYTEST} tests/unit/bridge/gate/test_workloads.py"
MISTAKEN = f"{PYTEST} tests/unit/bridge/presets/test_workload_mistakes.py"
OFFERS = "tests/unit/bridge/client/test_offers.py"
CHANGED = f"{PYTEST} {OFFERS} tests/unit/bridge/gate/test_workload_comparison.py -k changed"
SWEEPS = "tests/unit/bridge/client/test_sweep.py"
EXAMPLES = "tests/integration/client/test_workload_examples.py"
STUDIES = "make studies AREA=workloads"
ROOMS = ("runner", "executor", "client", "bus", "cli")


def rows(study: str) -> list[Row]:
    """Return the rows of every case of a study that is done."""
    return [row for entry in report_of("workloads", study).entries() for row in entry["rows"]]


def judged(case: Case) -> str:
    """Return what the gate says of the primary claim of a case."""
    (claim,) = judge(case.run_id, case.files(), case.record_value(), case.spec_value()).claims
    return f"{claim.decision}: {claim.wording}" + (f" ({claim.why[0]})" if claim.why else "")


def changed() -> str:
    """Return what compare says of two runs whose definitions differ."""
    other = trained()
    other.record["preset_digest"] = "b" * 64
    runs = (MeasuredRun({}, case.record_value(), case.spec_value(), "evidence") for case in (trained(), other))
    found = compare(*runs).reasons
    return next(reason.text for reason in found if reason.text.startswith("other definition"))


def planted() -> str:
    """Return how many mistakes are planted."""
    return f"{len(MISTAKES)} mistakes of a folder, each one line with a remedy, before anything runs"


def seeds() -> str:
    """Return the fewest repeats with an interval."""
    return f"{INTERVAL_LEAST} repeats: the range covers the median in {100 * (1 - 2 / 2**INTERVAL_LEAST):.1f} %"


def mutations() -> str | None:
    """Return how many mutations were made without a traceback, of those that the study has."""
    found = rows(workload_mutations.STUDY.name)
    if not found:
        return None
    made = Counter[str]()
    for row in found:
        made[row["kind"]] += row["mutations"]
    wanted = workload_mutations.SEEDS * sum(workload_mutations.PER_CASE.values())
    kept = ", ".join(f"{count:,} of {kind}" for kind, count in made.items())
    return f"{made.total():,} of {wanted:,} without a traceback: {kept}"


def found_as_planted(*kinds_of_case: str) -> str | None:
    """Return in how many runs of these kinds the gate said what was planted."""
    found = [row for row in rows(ratios.STUDY.name) if row["kind"] in kinds_of_case]
    if not found:
        return None
    by_kind = {kind: [row["as_planted"] for row in found if row["kind"] == kind] for kind in kinds_of_case}
    return "; ".join(f"{kind}: {sum(said)} of {len(said)} as planted" for kind, said in by_kind.items() if said)


def served() -> str | None:
    """Return how many presets of the examples passed and verified over a served runner, and what their claims say."""
    found = rows(served_examples.STUDY.name)
    if not found:
        return None
    well = [row for row in found if row["exit_code"] == 0 and row["verify"] == 0]
    said = ", ".join(f"{row['preset']} {row['reason']}" for row in found if row not in well)
    of = len(served_examples.cases())
    return f"{len(well)} of {of} presets passed and verified from a second clone" + (f"; not {said}" if said else "")


def kinds_named() -> str:
    """Return how many lines of these rooms name a kind of the engine's, in quotes or not."""
    words = "|".join(sorted(kinds()))
    folders = [f"bridge/{room}" for room in ROOMS]
    ran = subprocess.run(
        ["git", "grep", "-nwE", words, "--", *(f"{folder}/*.py" for folder in folders)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"{len(ran.stdout.splitlines())} lines, {len(kinds())} kinds"


LINES = (
    Line("own train.py: exit 0, metric with unit and interval on the first screen, reported by", TUTORIAL, seeds),
    Line("with the example's recompute: recomputed", TUTORIAL, lambda: judged(trained())),
    Line("a loss written as a constant is never citable", GATE, lambda: judged(trained((1.93,) * 6))),
    Line(">= 25 planted mistakes, a line and a remedy each, before anything is pushed or run", MISTAKEN, planted),
    Line("a planted 10 % slow-down is slower, an identical build is not, a sleeping baseline is seen by wait4", STUDIES,
         lambda: found_as_planted("slower", "identical", "sleeping")),
    Line("--against main does the same for a planted commit", STUDIES,
         lambda: found_as_planted("commit slower", "commit identical")),
    Line("a requester who never saw the host sees name, parameters, bounds, metrics", f"{PYTEST} {OFFERS}",
         lambda: ran(OFFERS)),
    Line("a changed definition is said at run and in compare", CHANGED, changed),
    Line("mutation of definitions and reports (>= 100,000): no traceback", STUDIES, mutations),
    Line("no line of bridge/{runner,executor,client,bus,cli} names an engine kind",
         f"{PYTEST} tests/unit/bridge/test_workload_words.py", kinds_named),
    Line("sweeps: one request each under one id, resumed by the same line, a table, compare", f"{PYTEST} {SWEEPS}",
         lambda: ran(SWEEPS)),
    Line("every example is checked as a folder, and each program runs", f"{PYTEST} {EXAMPLES}", lambda: ran(EXAMPLES)),
    Line("each preset of the examples over a runner that is served as printed", STUDIES, served),
)  # fmt: skip
