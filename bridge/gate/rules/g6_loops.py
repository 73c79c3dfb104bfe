"""Loops are said, and claims are the worse of all tokens and those before a loop.

Endless repetition is easy to draft: 1.8x and 2.9x were measured on targets that loop. It is never a reason to refuse:
numbered lists, dashes and repeating decimals are honest output.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G6-LOOPS", severity="note", kinds=kinds.SAMPLED, remedy="Quote the number before loops; use prompts that end."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    for arm in arms_of(report, evidence).all:
        looping = [sample for sample in arm.measured if sample["loop_onset"] is not None]
        if looping:
            first = min(sample["loop_onset"] for sample in looping)
            yield Violation(
                f"{len(looping)} of {len(arm.measured)} samples of arm {arm.name!r} loop, the first from token {first}",
                f"/arms/{arm.index}",
            )
