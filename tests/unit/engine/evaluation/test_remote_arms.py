"""An arm whose policy drafts nothing says so, step by step, and nothing else than that."""

from __future__ import annotations

from engine.decoding.speculative import UNDER_WAY
from engine.studies.remote_arms import CHOSEN_PLAIN, told_plain
from engine.types import Step


def test_a_step_without_a_draft_and_another_reason_was_chosen_to_be_plain() -> None:
    steps = [
        Step((1,), prefill=True),
        Step((2, 3), drafted=3, accepted=1),
        Step((4,)),
        Step((5,), skipped=UNDER_WAY),
        Step((6,), shadowed=4),
    ]
    marked = list(told_plain(steps))
    assert [step.skipped for step in marked] == [None, None, CHOSEN_PLAIN, UNDER_WAY, CHOSEN_PLAIN]
    assert [step.tokens for step in marked] == [step.tokens for step in steps]
