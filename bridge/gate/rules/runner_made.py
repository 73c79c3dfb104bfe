"""Rules on what the runner made itself: the draw of what was asked, outputs computed again."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.declared.kind import kinds
from bridge.gate.facts.peer_isolation import made_by_runner
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import DRAWN, INTERLEAVED, SAMPLED, STUDIES
from bridge.gate.rule import report_rule
from bridge.gate.rules import recomputed
from bridge.gate.rules.arms import drawn_names


@report_rule(
    "G2-DRAWN",
    "inputs",
    severity="violation",
    kinds=(*SAMPLED, *STUDIES),
    remedy="Run it again: a host of today draws a nonce when the run begins, and its commands follow it.",
)
def require_draw(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The order of what was asked follows from a nonce that the runner made after the start.

    What is known beforehand can be prepared: answers listed, prompts chosen until they help. A request's digest is
    known to whoever wrote the request. Rows without samples are compared with what the nonce draws when they are
    measured again.
    """
    record = evidence.record
    if record is None or made_by_runner(evidence):
        return
    if record.nonce is None:
        yield Violation("the runner drew no nonce for this run", "nonce")
    elif report.kind in SAMPLED and report.kind not in (*INTERLEAVED, *DRAWN):
        yield Violation(f"a study of the kind {report.kind} asks in an order of its own", "/rows")
    elif report.kind in DRAWN:
        yield from _drawn_prompts(report, evidence, record.nonce)
    if record.nonce is not None and record.nonce in {
        record.request_digest,
        evidence.spec.request_digest if evidence.spec is not None else None,
    }:
        yield Violation("the nonce was known before the run", "nonce", severity="reject")


def _drawn_prompts(report: Report, evidence: Evidence, nonce: str) -> Iterator[Violation]:
    for arm in arms_of(report, evidence).all:
        met = [sample["prompt_id"] for sample in arm.measured]
        if met != drawn_names(met, nonce, 0):
            yield Violation("prompts were not met in the order that the nonce draws", f"/arms/{arm.index}")


@report_rule(
    "G2-RECOMPUTED",
    "outputs",
    severity="violation",
    kinds=(*SAMPLED, *STUDIES),
    remedy="Use a preset whose last command confirms; read recompute.json beside the report.",
)
def compare_recomputation(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """A process of the host's own, with the models that the runner digested, confirms every output.

    A program that sleeps and makes its tokens up can write a report that agrees with itself in every row. Whoever wants
    to be believed is computed again: teacher-forced over every sample, free-running over some, the text decoded from
    the tokens. `exact` and `near` differ in how far a token may be from the target's best, `drawn` asks how surprising
    sampled tokens are, `numeric` compares a number. Prompts that are not in the host's own set, or others of it than
    its rule chooses, were chosen by the program, and are no inputs. What a lossy cache put out is decoded again on the
    same layout.
    Rows without tokens are measured again: bytes and decisions repeat, times do not. What a drafter proposed is asked
    of the drafter here, prompt by prompt: two rungs that agree may have been written by one hand.
    """
    if evidence.record is None or evidence.spec is None or made_by_runner(evidence):
        return
    yield from recomputed.problems(report, kinds()[str(report.kind)], evidence)
