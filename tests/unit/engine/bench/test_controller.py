from __future__ import annotations

import pytest

from engine.bench.controller import DraftCounts, Pair, SpoiltDrafter, curve
from engine.bench.turns import Arrivals
from engine.drafters.ngram import NgramModel
from engine.errors import UsageError
from engine.types import Step


def pair(name: str, plain_s: float, controlled_s: float, *, jump: int = 1, identical: bool = True) -> Pair:
    """Both decodes of 100 tokens at a constant pace; the controlled one commits ``jump`` tokens a step."""
    counts = tuple(range(1, 102, jump))
    plain = Arrivals(tuple(range(1, 102)), tuple(plain_s * index for index in range(101)))
    controlled = Arrivals(counts, tuple(controlled_s * (count - 1) for count in counts))
    return Pair("world", name, plain, controlled, identical, drafted_steps=0, shadow_drafts=0)


def test_the_curve_is_the_ratio_of_times_to_the_same_number_of_tokens() -> None:
    ratios = curve([pair("a", 1.0, 2.0), pair("b", 2.0, 4.0, jump=4)], [10, 64])
    assert ratios[10].value == pytest.approx(0.5)
    assert ratios[64].value == pytest.approx(0.5)
    assert ratios[64].n == 2


def test_a_row_holds_both_times_to_the_same_number_of_tokens() -> None:
    row = pair("b", 2.0, 4.0, jump=4).row([10])
    assert row["times"] == {"10": {"tokens": 13, "plain_s": 24.0, "controlled_s": 48.0}}
    assert (row["world"], row["prompt_id"], row["identical"]) == ("world", "b", True)


def test_a_decode_to_other_tokens_has_no_ratio() -> None:
    with pytest.raises(UsageError, match="1 prompts were decoded to other tokens, first b"):
        curve([pair("a", 1.0, 1.0), pair("b", 1.0, 1.0, identical=False)], [10])


def test_a_spoilt_drafter_proposes_other_tokens_from_its_position_on_and_pays_for_them() -> None:
    inside = NgramModel().open()
    inside.observe(0, (5, 6, 7, 5, 6, 7, 5, 6), None)
    right = inside.ask(7, 8, 3)
    assert right.count == 3
    assert SpoiltDrafter(inside, 100, since=9).ask(7, 8, 3) == right
    wrong = SpoiltDrafter(inside, 7, since=8).ask(7, 8, 3)
    assert wrong.tokens == tuple((token + 1) % 7 for token in right.tokens)
    assert wrong.count == right.count


def test_drafted_steps_and_shadow_drafts_are_counted_while_tokens_pass() -> None:
    steps = [Step((index,), 3 * (index == 2), 0, 1, 0, 1, 0, 1, shadowed=4 * (index in (1, 3))) for index in range(6)]
    counts = DraftCounts()
    assert list(counts.count(iter(steps))) == [(index,) for index in range(6)]
    assert counts == DraftCounts(drafted_steps=1, shadow_drafts=2)
