"""Whether prompts can be decoded at all with the tokens asked for, settled before anything runs."""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import PromptError
from engine.types import TargetInfo


def check_prompt(ids: tuple[int, ...], info: TargetInfo, cached: int = 0, new_tokens: int = 1) -> None:
    """Check a prompt before any work; ``cached`` positions are already in the cache, ``new_tokens`` may follow.

    Raises:
        PromptError: If the prompt is empty, too long for the model or holds ids outside the vocabulary.
    """
    if not ids:
        raise PromptError("the prompt has no tokens; expected at least one")
    room = room_tokens(cached + len(ids), info)
    if room < 1:
        raise PromptError(
            f"the prompt has {len(ids)} tokens; {info.name!r} holds {info.max_positions} positions and needs one for "
            "its answer. Shorten the prompt."
        )
    if new_tokens > room:
        raise PromptError(
            f"a prompt of {len(ids)} tokens and a budget of {new_tokens}; {info.name!r} holds {info.max_positions} "
            f"positions, which leaves {room} for new tokens. Lower the budget (--max-new) or shorten the prompt."
        )
    wrong = min(ids) if min(ids) < 0 else max(ids)
    if not 0 <= wrong < info.vocab_size:
        raise PromptError(
            f"the prompt holds token id {wrong}; expected 0 <= id < {info.vocab_size}. Tokenise it with the target's "
            "own tokenizer."
        )


def check_prompts(prompts: Iterable[tuple[int, ...]], info: TargetInfo, new_tokens: int) -> None:
    """Check all prompts of a measurement before its first decode, so that none of them ends it half-way.

    Raises:
        PromptError: If one cannot be decoded.
    """
    for ids in prompts:
        check_prompt(ids, info, new_tokens=new_tokens)


def room_tokens(prompt_tokens: int, info: TargetInfo) -> int:
    """Return how many new tokens fit behind a prompt, 0 or less for none."""
    return info.max_positions - prompt_tokens
