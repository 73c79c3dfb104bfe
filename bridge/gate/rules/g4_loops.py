"""A sample's loop onset is the one its tokens have.

Repetition makes drafting easy; where it starts decides what may be claimed, so nobody's word is taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of, loop_onset


@report_rule("G4-LOOPS", kinds=kinds.SAMPLED, remedy="Use the engine's loop_onset; both sides share its definition.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    known: dict[str, int | None] = {}
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            digest = sample["token_digest"]
            if digest not in known:
                known[digest] = loop_onset(sample["tokens"])
            if sample["loop_onset"] != known[digest]:
                yield Violation(
                    f"loop_onset is {sample['loop_onset']}, the tokens give {known[digest]}", arm.pointer(sample)
                )
