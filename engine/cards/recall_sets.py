"""Prompt sets that ask for what a long context hides: one code, one of four, one behind two hops, the last of four.

Every set has the same lengths and as many prompts, so that what a bounded cache answers can be compared by task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cards.loading import EvaluatedTarget
from engine.training.needles import QUESTION, Needle, hide, make_needles

LENGTH, COUNT = 1900, 150
NEEDLES, CHAINS = 4, 2
LINK = "\n# NOTE: the secret code for {key} is that of {other}."


@dataclass(frozen=True)
class RecallTask:
    """What is hidden and what is asked: lines for the context, the question at its end, and the code expected."""

    lines: tuple[str, ...]
    question: str
    expected: str


@dataclass(frozen=True)
class RecallPrompt:
    """One prompt as it is stored."""

    id: str
    kind: str
    text: str
    expected: str


def one(rng: np.random.Generator, words: tuple[str, ...]) -> RecallTask:
    """Hide one code and ask for it."""
    (needle,) = make_needles(rng, words, 1)
    return RecallTask((needle.note,), needle.question, needle.code)


def four(rng: np.random.Generator, words: tuple[str, ...]) -> RecallTask:
    """Hide four codes and ask for the first drawn."""
    needles = make_needles(rng, words, NEEDLES)
    return RecallTask(tuple(each.note for each in needles), needles[0].question, needles[0].code)


def chain(rng: np.random.Generator, words: tuple[str, ...]) -> RecallTask:
    """Hide two codes and for each a key that stands for its key; ask for the code of such a key: two hops."""
    needles = make_needles(rng, words, 2 * CHAINS)
    ends, begins = needles[:CHAINS], needles[CHAINS:]
    links = (LINK.format(key=begin.key, other=end.key) for begin, end in zip(begins, ends, strict=True))
    question = QUESTION.format(key=begins[0].key)
    return RecallTask((*links, *(each.note for each in ends)), question, ends[0].code)


def turns(rng: np.random.Generator, words: tuple[str, ...]) -> RecallTask:
    """Hide four codes and ask for all of them, one after the other, each but the last with its answer behind it."""
    needles: tuple[Needle, ...] = make_needles(rng, words, NEEDLES)
    *earlier, last = needles
    questions = "".join(each.question + each.answer for each in earlier)
    return RecallTask(tuple(each.note for each in needles), questions + last.question, last.code)


TASKS: dict[str, Callable[[np.random.Generator, tuple[str, ...]], RecallTask]] = {
    "recall-one": one,
    "recall-four": four,
    "recall-chain": chain,
    "recall-turns": turns,
}
_ASKED = {
    "recall-one": "One secret code is hidden and asked for",
    "recall-four": "Four secret codes are hidden and one is asked for",
    "recall-chain": (
        "Two secret codes are hidden, and for the key of each another key that stands for it; the code of such a key "
        "is asked for: two hops"
    ),
    "recall-turns": (
        "Four secret codes are hidden and asked for one after the other; the first three are answered in the prompt, "
        "the last is expected"
    ),
}
RULES = {
    name: f"{question}. Held-out library code around, key words from the training pool, drawn digits (seed {{seed}}): "
    f"{COUNT} prompts of about {LENGTH:,} tokens, the first hidden line at evenly spread depths, the others anywhere."
    for name, question in _ASKED.items()
}


def recall_prompts(
    name: str,
    target: EvaluatedTarget,
    texts: list[str],
    words: tuple[str, ...],
    seed: int,
    *,
    count: int = COUNT,
    length: int = LENGTH,
) -> list[RecallPrompt]:
    """Return the first prompts of a set; each depends on the seed, the set and its number alone.

    Args:
        name: One of ``TASKS``.
        target: Its tokenizer measures lengths.
        texts: What lines are hidden in.
        words: What keys are made of.
        seed: Of all draws.
        count: How many.
        length: Tokens of a prompt, about.
    """
    tokenizer: Any = target.tokenizer
    filler = [token for text in texts for token in tokenizer.encode(text, add_special_tokens=False).ids]
    newlines = frozenset(
        token for token in range(6, tokenizer.get_vocab_size()) if tokenizer.decode([token]).startswith("\n")
    )
    prompts = []
    for number in range(count):
        rng = np.random.default_rng([seed, 43, list(TASKS).index(name), number])
        task = TASKS[name](rng, words)
        lines, question = _encoded(tokenizer, task.lines), _encoded(tokenizer, (task.question,))[0]
        room = length - 1 - len(question) - sum(map(len, lines))
        start = int(rng.integers(0, len(filler) - room))
        depths = [(number + 0.5) / COUNT, *(float(depth) for depth in rng.random(len(lines) - 1))]
        body = hide(filler[start : start + room], lines, depths, newlines)
        text = tokenizer.decode([*body, *question])
        prompts.append(RecallPrompt(f"{name}-{number:03d}", "needle", text, task.expected))
    return prompts


def _encoded(tokenizer: Any, lines: tuple[str, ...]) -> list[list[int]]:
    return [list(tokenizer.encode(line, add_special_tokens=False).ids) for line in lines]
