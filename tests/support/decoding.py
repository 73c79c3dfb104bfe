"""Decode a short prompt plainly and with drafts on either backend, and script drafters that are wrong at will."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Step
from tests.fakes.tiny_torch import VOCAB

BUDGET = 16

ADVERSARIES: dict[str, Callable[[int], Callable[[int, int], bool]]] = {
    "always right": lambda _: lambda step, index: False,
    "always wrong": lambda _: lambda step, index: True,
    "right then wrong": lambda place: lambda step, index: index >= place,
    "another place each step": lambda place: lambda step, index: index == (step * 3 + place) % 8,
}
"""Whether a scripted drafter is wrong, by the step and the index in its draft; each may be given a place."""


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    """Return random token ids of the tiny targets that are none of their special ones."""
    import torch

    generator = torch.Generator().manual_seed(seed)  # of its seed 0 each tiny target makes answers of several tokens
    return tuple(torch.randint(5, VOCAB, (length,), generator=generator).tolist())


def tokens_of(steps: Iterable[Step]) -> list[int]:
    """Return the tokens that steps commit, in order."""
    return [token for step in steps for token in step.tokens]


def plain(backend: Any, target: Any, prompt: tuple[int, ...], budget: int = BUDGET) -> tuple[int, ...]:
    """Return the oracle: every row kept, the whole prompt in one chunk, one token at a time."""
    sequence = target.open((), CacheLayout.FULL)
    return tuple(tokens_of(autoregressive(sequence, backend.greedy(target), prompt, Stopping(budget), 512)))


def drafted(
    backend: Any,
    target: Any,
    drafter: Any,
    prompt: tuple[int, ...],
    stopping: Stopping,
    depth: Any = 7,
    layout: CacheLayout = CacheLayout.NATIVE,
    chunk: int = 512,
) -> list[Step]:
    """Return the steps of a drafted decode whose sequence ends at its last step's position.

    Args:
        depth: a number of tokens, or a policy.
        chunk: rows of a prefill forward.
    """
    sequence = target.open(drafter.capture, layout)
    policy = FixedDepth(depth) if isinstance(depth, int) else depth
    parts = Parts(sequence, drafter.open(), backend.greedy(target), policy, backend.clock)
    steps = list(speculative(parts, prompt, stopping, chunk))
    assert sequence.length == steps[-1].position
    return steps
