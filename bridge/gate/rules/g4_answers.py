"""An answer is right exactly when its text says so.

`answer_text=""` made every answer of the seed right. A prompt without a known answer has no right one, and where most
prompts have the same answer, saying it always is no recall.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Arm, arms_of


@report_rule(
    "G4-ANSWERS", kinds=kinds.SAMPLED, remedy="Score with the engine: the first line holds the answer as a word."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            expected, correct = sample["expected"], sample["correct"]
            if (expected is None) != (correct is None):
                yield Violation(f"expected {expected!r} with correct {correct!r}", arm.pointer(sample))
            elif expected is not None and not expected.strip():
                yield Violation("an empty answer is in every text", arm.pointer(sample))
            elif expected is not None and answered(expected, sample["text"]) != correct:
                yield Violation(f"correct is {correct}, the text says otherwise", arm.pointer(sample))
        yield from _one_answer(arm)


def _one_answer(arm: Arm) -> Iterator[Violation]:
    """Yield the answer that most prompts of an arm share."""
    asked = {s["prompt_id"]: s["expected"] for s in arm.measured if s["expected"] is not None}
    for answer, count in Counter(asked.values()).most_common(1):
        if len(asked) > 3 and count > len(asked) / 2:
            yield Violation(f"{answer!r} is the answer of {count} of {len(asked)} prompts", f"/arms/{arm.index}")


def answered(expected: str, text: str) -> bool:
    """Return whether the answer's first line holds the expected value as a whole word."""
    first = text.strip().split("\n", 1)[0]
    return expected in {word.strip(".,;:!?'\"()") for word in first.split()}
