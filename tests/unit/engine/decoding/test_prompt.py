"""A prompt and its budget fit the target's context, or nothing is decoded."""

from __future__ import annotations

import pytest

from engine.decoding.prompt import check_prompt, check_prompts, room_tokens
from engine.errors import PromptError
from engine.types import TargetInfo

INFO = TargetInfo(
    name="tiny",
    digest="0" * 64,
    format="huggingface",
    parameters=1,
    vocab_size=50,
    hidden_size=8,
    layer_count=2,
    max_positions=32,
    sliding_window=None,
    dtype="float32",
)


@pytest.mark.parametrize("prompt_tokens", [1, 20, 31])
def test_a_budget_may_fill_the_context_and_not_a_token_more(prompt_tokens: int) -> None:
    ids = (7,) * prompt_tokens
    room = room_tokens(prompt_tokens, INFO)
    assert room == 32 - prompt_tokens
    check_prompt(ids, INFO, new_tokens=room)
    with pytest.raises(PromptError, match=rf"holds 32 positions, which leaves {room} for new tokens"):
        check_prompt(ids, INFO, new_tokens=room + 1)


def test_positions_already_held_count() -> None:
    check_prompt((7,) * 10, INFO, cached=12, new_tokens=10)
    with pytest.raises(PromptError, match="leaves 10"):
        check_prompt((7,) * 10, INFO, cached=12, new_tokens=11)


def test_one_prompt_of_many_that_does_not_fit_refuses_them_all() -> None:
    short, long = (7,) * 4, (7,) * 30
    check_prompts([short, short], INFO, 20)
    with pytest.raises(PromptError, match="a prompt of 30 tokens and a budget of 20"):
        check_prompts([short, long, short], INFO, 20)
