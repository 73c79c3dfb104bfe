"""Needle recall of a target by prompt length and depth, from its own greedy answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cards.binomial import Proportion, clopper_pearson
from engine.cards.loading import EvaluatedTarget
from engine.errors import UsageError
from engine.training.needles import hide, make_needles
from engine.training.requests import ResponseRequest

ANSWER_TOKENS = 28
BATCH_ROWS, BATCH_TOKENS = 16, 32768
"""Prompts forwarded together: attention masks grow with the square of their length."""


@dataclass(frozen=True)
class NeedlePrompt:
    """A prompt with hidden needles: token ids, the code asked for, and where its needle lies (0 to 1)."""

    ids: tuple[int, ...]
    text: str
    expected: str
    depth: float


@dataclass(frozen=True)
class RecallResult:
    """Recall at one length: the proportion and each prompt's depth and outcome."""

    length: int
    needles: int
    proportion: Proportion
    outcomes: tuple[tuple[float, bool], ...]


def needle_prompts(
    target: EvaluatedTarget,
    texts: list[str],
    words: tuple[str, ...],
    length: int,
    count: int,
    *,
    seed: int,
    needles: int = 1,
) -> list[NeedlePrompt]:
    """Make `count` prompts of about `length` tokens with depths spread evenly over the held-out filler of `texts`.

    Raises:
        UsageError: If question and needles do not fit, or the filler is shorter than the prompt.
    """
    rng = np.random.default_rng([seed, length, needles])
    tokenizer = target.tokenizer
    filler_ids = [i for text in texts for i in tokenizer.encode(text, add_special_tokens=False).ids]
    size = tokenizer.get_vocab_size()
    newlines = frozenset(i for i in range(6, size) if tokenizer.decode([i]).startswith("\n"))
    prompts = []
    for index in range(count):
        made = make_needles(rng, words, needles)
        lines = [list(tokenizer.encode(needle.note, add_special_tokens=False).ids) for needle in made]
        question = list(tokenizer.encode(made[0].question, add_special_tokens=False).ids)
        room = length - 1 - len(question) - sum(len(line) for line in lines)
        if not 0 <= room < len(filler_ids):
            raise UsageError(
                f"length {length} leaves {room} tokens around question and needles; there are {len(filler_ids)} of text"
            )
        start = int(rng.integers(0, len(filler_ids) - room))
        depth = (index + 0.5) / count
        depths = [depth, *(float(d) for d in rng.random(needles - 1))]
        body = hide(filler_ids[start : start + room], lines, depths, newlines)
        text = tokenizer.decode([*body, *question])
        prompts.append(NeedlePrompt(tuple(target.encode(text)), text, made[0].code, depth))
    return prompts


def is_recalled(text: str, expected: str) -> bool:
    """Say whether the answer gives exactly the expected code and a full stop."""
    return f"is {expected}." in text


def measure_recall(target: EvaluatedTarget, prompts: list[NeedlePrompt], length: int, needles: int = 1) -> RecallResult:
    """Answer `prompts` greedily and count exact codes."""
    from engine.training.responses import regenerate_in_order

    requests = [ResponseRequest(prompt.ids, ANSWER_TOKENS, ANSWER_TOKENS) for prompt in prompts]
    rows = max(1, min(BATCH_ROWS, BATCH_TOKENS // length))
    answers = regenerate_in_order(target.model, requests, rows=rows, marks=target.ends)
    outcomes = []
    for prompt, answer in zip(prompts, answers, strict=True):
        text = target.tokenizer.decode(list(answer.ids[answer.prompt_tokens :]))
        outcomes.append((prompt.depth, is_recalled(text, prompt.expected)))
    right = sum(outcome for _, outcome in outcomes)
    return RecallResult(length, needles, clopper_pearson(right, len(outcomes)), tuple(outcomes))


def without_full_attention(target: EvaluatedTarget) -> list[Any]:
    """Make every full-attention layer output zeros and return the hook handles that undo it."""

    def zero(module: Any, inputs: Any, output: Any) -> Any:
        del module, inputs
        return (output[0] * 0.0, *output[1:])

    layers = target.model.model.layers
    kinds = target.model.config.layer_types
    return [
        layer.self_attn.register_forward_hook(zero)
        for layer, kind in zip(layers, kinds, strict=True)
        if kind == "full_attention"
    ]
