"""Every measured sample decodes long enough to be timed.

At 64 tokens of a small model identical work differed 2.7-fold, at 0.2 s and more less than 1.5-fold.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G5-DURATION",
    severity="not_citable",
    kinds=kinds.PAIRED,
    remedy="Raise the token budget, on every arm, before measuring.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    least_s = float(evidence.profile["decode_min_s"])
    for arm in arms_of(report, evidence).all:
        if arm.name in kinds.UNSEEN:  # may hold its first token back: only its total time says something
            continue
        short = [sample for sample in arm.measured if sample["stages"]["decode_s"] < least_s]
        if short:
            shortest = min(short, key=lambda sample: float(sample["stages"]["decode_s"]))
            yield Violation(
                f"{len(short)} samples of arm {arm.name!r} decode for less than {least_s} s, the shortest for "
                f"{shortest['stages']['decode_s']:.3f} s",
                arm.pointer(shortest),
            )
