"""Whether recorded forwards may be used on this machine: the same blocks both ways, before anything else runs.

A recording that answers otherwise, or that could not be tried, is never used. With ``must_pay`` neither is one that
takes longer.
"""

from __future__ import annotations

from statistics import median

import torch

from engine.backends.torch.models.sequence import TorchSequence
from engine.backends.torch.target import TorchTarget
from engine.protocols import Clock
from engine.structure.layout import CacheLayout
from engine.types import Draft

UNTRIED = "there was no memory to try recorded forwards in"
PROMPT_TOKENS = 16
ROUNDS = 8
TOLERANCES = {torch.float32: 1e-4}
"""Largest difference of a logit, as a share of the largest logit; the order of sums may change with the shapes."""
HALF_TOLERANCE = 0.05


def refusal(target: TorchTarget, clock: Clock, block_rows: int, must_pay: bool) -> str | None:
    """Return why recordings are not to be used with a target, None when they are."""
    ids = tuple(index % target.info.vocab_size for index in range(1, PROMPT_TOKENS + 1))
    plain, recorded = TorchSequence(target, (), CacheLayout.NATIVE), target.open((), CacheLayout.NATIVE)
    for sequence in (plain, recorded):
        for _ in sequence.prefill(ids, PROMPT_TOKENS):
            pass
    spent_ns: dict[str, list[int]] = {"plain": [], "recorded": []}
    for turn in range(ROUNDS):
        for rows in (1, block_rows):
            draft = Draft(tokens=ids[: rows - 1], count=rows - 1)
            found = {}
            ways = {"plain": plain, "recorded": recorded}
            for name in sorted(ways, reverse=bool(turn % 2)):
                began_ns = clock.now_ns()
                found[name] = ways[name].forward_block(ids[0], draft).logits
                spent_ns[name].append(clock.now_ns() - began_ns)
                ways[name].crop(PROMPT_TOKENS)
            apart = float((found["plain"] - found["recorded"]).abs().max() / found["plain"].abs().max())
            if not apart <= TOLERANCES.get(target.dtype, HALF_TOLERANCE):
                return f"recorded forwards of {rows} rows differ from plain ones by {apart:.1e} of the largest logit"
    if recorded.fallbacks().keys() - plain.fallbacks().keys():
        return None if target.slots is None else target.slots.refused or UNTRIED
    if not must_pay:
        return None
    # Medians of each block length: the first turn of each may still choose kernels.
    taken = {name: median(times[0::2]) + median(times[1::2]) for name, times in spent_ns.items()}
    if taken["recorded"] > taken["plain"]:
        return f"recorded forwards took {taken['recorded'] / taken['plain']:.2f} times as long as plain ones when tried"
    return None
