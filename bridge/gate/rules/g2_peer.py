"""Code that nobody trusts was measured from outside: out of reach, on prompts drawn afterwards, every token checked.

Such code can time itself, print tokens it has never computed, or keep the machine busy while the baseline runs. So host
code asks it over a pipe, as another user in another sandbox; prompts follow from a nonce the runner drew; all of its
processes stand still while the host measures itself; and each answer is compared with native decoding.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds, outside
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G2-PEER",
    kinds=(kinds.REQUEST_CODE,),
    remedy="Use the preset k3-request-code on a Linux host whose policy names sandbox.uid and sandbox.peer_uid.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    if evidence.record is None or evidence.spec is None:
        return
    yield from outside.problems(report, evidence)
