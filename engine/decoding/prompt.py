"""Whether a prompt can be decoded at all, asked before anything runs."""

from __future__ import annotations

from engine.errors import PromptError
from engine.types import TargetInfo


def check_prompt(ids: tuple[int, ...], info: TargetInfo, held: int = 0) -> None:
    """Check a prompt before any work; ``held`` positions are already in the cache.

    Raises:
        PromptError: If the prompt is empty, too long for the model or holds ids outside the vocabulary.
    """
    if not ids:
        raise PromptError("the prompt has no tokens; expected at least one")
    if held + len(ids) >= info.max_positions:
        raise PromptError(
            f"the prompt has {len(ids)} tokens; {info.name!r} holds {info.max_positions} positions and needs one for "
            "its answer. Shorten the prompt."
        )
    wrong = min(ids) if min(ids) < 0 else max(ids)
    if not 0 <= wrong < info.vocab_size:
        raise PromptError(
            f"the prompt holds token id {wrong}; expected 0 <= id < {info.vocab_size}. Tokenise it with the target's "
            "own tokenizer."
        )
