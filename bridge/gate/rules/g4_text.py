"""Equal tokens have equal text, and a sample with tokens has text.

The text is what people read; it must be the text of these tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of


@report_rule(
    "G4-TEXT", kinds=kinds.SAMPLED, remedy="Decode the text from the recorded tokens with the target's tokenizer."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    texts: dict[str, str] = {}
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            known = texts.setdefault(sample["token_digest"], sample["text"])
            if known != sample["text"]:
                yield Violation("the same tokens have another text elsewhere", arm.pointer(sample))
