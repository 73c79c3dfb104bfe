"""What the issue on evidence promises to show of claim runs: under load, on faster hardware, beside cancelled runs."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.claim_runs.campaign import KEPT, LOADS, STUDY
from benchmarks.claim_runs.figures import WANTED, agreement, at_load
from benchmarks.show.line import Line
from benchmarks.show.source import ROOT
from benchmarks.simulation.page import rows
from bridge.gate import judge
from bridge.records import Verdict
from tests.corpus.gate.builders import Case
from tests.corpus.gate.turned import in_turns

STUDIES, SHOW = "make studies AREA=evidence", "make show AREA=evidence"
FASTER = 20.0
EARLIER = ("01jd7zk3v8q4w2m6x9c5b7n1t0", "01jd7zk3v8q4w2m6x9c5b7n1t1", "01jd7zk3v8q4w2m6x9c5b7n1t2")


def _at(load: int) -> Callable[[], str | None]:
    return lambda: at_load(rows(STUDY.name), load)


def agreed() -> str | None:
    """Return whether the second run at each load agrees with the first."""
    return agreement(rows(STUDY.name))


def kept() -> str | None:
    """Return how many results of claim runs are committed, and which of them the README names."""
    found = sorted(path.parent.name for path in KEPT.glob("*/verdict.json"))
    readme = (ROOT / "README.md").read_text("utf-8")
    quoted = [name for name in found if name in readme]
    return (
        f"{len(found)} in docs/evidence/claim-runs; the README names {', '.join(quoted) or 'none'}" if found else None
    )


def _judged(case: Case) -> Verdict:
    case.seal()
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


def faster() -> str:
    """Return which claims an honest simulated run on much faster hardware can make."""
    claims = {claim.id: claim.decision for claim in _judged(in_turns(faster=FASTER)).claims}
    return ", ".join(f"{name} {claims[name]}" for name in WANTED)


def cancelled() -> str:
    """Return the class of an honest simulated run after so many attempts that left nothing to pool."""
    case, said = in_turns(), []
    for count in (1, 2, 3):
        gone = list(EARLIER[:count])
        case.record["attempt"].update(number=count + 1, earlier=gone, unseen=gone)
        said.append(f"after {count}: {_judged(case).decision}")
    return "; ".join(said)


LINES = (
    *(
        Line(
            f"at {load} % load a claim run within 15 minutes gives citable identity, acceptance and ratio; tokens/s is "
            "not citable",
            STUDIES,
            _at(load),
        )
        for load in LOADS
    ),
    Line("a second run at the same load agrees", STUDIES, agreed),
    Line("docs/evidence holds them, the README quotes one", STUDIES, kept),
    Line("simulated hardware 20x faster can make every claim", SHOW, faster),
    Line("a cancelled run bars nothing (three do)", SHOW, cancelled),
)
