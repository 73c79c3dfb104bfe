"""Acceptance length of drafters on a target's own greedy output.

Greedy speculation is lossless, so what a drafter is asked is known once the greedy tokens are: it drafts at every
position in one batched pass, and the steps a speculative run would take are walked over that table.
Knows nothing about caches or time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cards.language import GreedySample
from engine.cards.loading import EvaluatedTarget
from engine.drafters.ngram import NgramModel

ANCHORS_A_PASS = 48
RESAMPLES = 4000
Propose = Callable[[int], Sequence[int]]


@dataclass(frozen=True)
class Walk:
    """One prompt's speculative run: accepted tokens of each step and the committed total after the first token."""

    accepted_per_step: tuple[int, ...]
    committed: int

    @property
    def acceptance_length(self) -> float:
        """Committed tokens per target forward, bonus included."""
        return self.committed / len(self.accepted_per_step)


@dataclass(frozen=True)
class AcceptanceLength:
    """Mean acceptance length over prompts with the lower bound of its 95 % interval (bootstrap over prompts)."""

    drafter: str
    block_size: int
    prompts: int
    mean: float
    lower: float
    upper: float
    pooled: float


def walk(tokens: Sequence[int], start: int, propose: Propose) -> Walk:
    """Walk the steps of a greedy speculative run.

    Args:
        tokens: Prompt and greedy output.
        start: Position of the first output token, which prefill gives.
        propose: Draft tokens for the positions after a bonus at the given position.
    """
    position, accepted_per_step = start, []
    last = len(tokens) - 1
    while position < last:
        accepted = 0
        for draft, token in zip(propose(position), tokens[position + 1 :], strict=False):
            if draft != token:
                break
            accepted += 1
        accepted_per_step.append(accepted)
        position += accepted + 1
    return Walk(tuple(accepted_per_step), last - start)


def ngram_walk(tokens: Sequence[int], start: int, depth: int) -> Walk:
    """Walk with the n-gram drafter at `depth` draft tokens."""
    drafter = NgramModel().open()
    shown = 0

    def propose(position: int) -> Sequence[int]:
        nonlocal shown
        drafter.observe(shown, tuple(tokens[shown:position]), None)
        shown = position
        return tuple(drafter.ask(tokens[position], position, depth).tokens)

    return walk(tokens, start, propose)


def draft_table(
    target: EvaluatedTarget, drafter: Any, tokens: Sequence[int], start: int, block_size: int
) -> np.ndarray:
    """Return the drafts [positions, block_size - 1] at every bonus position from `start` to the last but one."""
    import torch

    ids = torch.tensor([list(tokens)])
    with torch.no_grad():
        output = target.model.model(input_ids=ids, use_cache=False, output_hidden_states=True)
        layers = drafter.config["dflash_config"]["target_layer_ids"]
        features = torch.cat([output.hidden_states[layer + 1] for layer in layers], dim=-1)
        positions = torch.arange(start, len(tokens) - 1)
        parts = [
            _draft_chunk(target, drafter, (ids, features), chunk, block_size)
            for chunk in positions.split(ANCHORS_A_PASS)
        ]
    return torch.cat(parts).numpy() if parts else np.zeros((0, block_size - 1), dtype=np.int64)


def _draft_chunk(
    target: EvaluatedTarget, drafter: Any, context_rows: tuple[Any, Any], anchors: Any, block_size: int
) -> Any:
    import torch

    ids, features = context_rows
    settings = drafter.config["dflash_config"]
    count, length = len(anchors), ids.shape[1]
    block = torch.full((count, block_size), settings["mask_token_id"])
    block[:, 0] = ids[0, anchors]
    table, head = target.model.model.embed_tokens.weight, target.model.lm_head.weight
    embedded = torch.nn.functional.embedding(block.flatten()[None], table) * settings["input_embedding_scale"]
    where = (anchors[:, None] + torch.arange(block_size)).flatten()[None]
    context = torch.arange(length)[None]
    owner = torch.arange(count).repeat_interleave(block_size)
    sees_context = context < anchors.repeat_interleave(block_size)[:, None]
    mask = torch.cat([sees_context, owner[:, None] == owner[None, :]], dim=-1)[None, None]
    hidden = drafter(embedded, features, context, where, mask)
    # As one matrix: of a view with gaps torch multiplies every block by itself, and packs the whole head for each.
    logits = torch.nn.functional.linear(hidden.view(count, block_size, -1)[:, 1:].flatten(0, 1), head)
    return logits.argmax(-1).view(count, block_size - 1)


def dflash_walk(target: EvaluatedTarget, drafter: Any, tokens: Sequence[int], start: int, block_size: int) -> Walk:
    """Walk with a DFlash drafter at `block_size`."""
    table = draft_table(target, drafter, tokens, start, block_size)
    return walk(tokens, start, lambda position: [int(i) for i in table[position - start]])


def summarise(drafter: str, block_size: int, walks: list[Walk], seed: int = 7) -> AcceptanceLength:
    """Return the mean of per-prompt acceptance lengths with its bootstrap interval, and the pooled ratio.

    Raises:
        ValueError: When there is no walk.
    """
    if not walks:
        raise ValueError("got no prompts to summarise, expected at least one")
    values = np.array([item.acceptance_length for item in walks])
    rng = np.random.default_rng(seed)
    means = values[rng.integers(0, len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    pooled = sum(item.committed for item in walks) / sum(len(item.accepted_per_step) for item in walks)
    low, high = np.percentile(means, [2.5, 97.5])
    return AcceptanceLength(drafter, block_size, len(walks), float(values.mean()), float(low), float(high), pooled)


def before_loop(sample: GreedySample) -> tuple[int, ...]:
    """Return the output tokens up to the first loop, or all of them."""
    return sample.tokens if sample.loop_onset is None else sample.tokens[: sample.loop_onset]


def measure_acceptance(
    target: EvaluatedTarget,
    drafter: Any,
    samples: list[GreedySample],
    prompts: dict[str, tuple[int, ...]],
    block_size: int,
) -> tuple[AcceptanceLength, AcceptanceLength]:
    """Return the acceptance of the DFlash drafter and of the n-gram drafter over `samples` before their first loop.

    Args:
        target: The target that produced the samples.
        drafter: The DFlash drafter.
        samples: Greedy samples.
        prompts: Prompt token ids by prompt id.
        block_size: Rows of a block, the bonus included; both drafters may propose one less.
    """
    neural, lookup = [], []
    for sample in samples:
        output = before_loop(sample)
        if len(output) < 2:
            continue
        prompt = prompts[sample.prompt_id]
        tokens = [*prompt, *output]
        neural.append(dflash_walk(target, drafter, tokens, len(prompt), block_size))
        lookup.append(ngram_walk(tokens, len(prompt), block_size - 1))
    return summarise("dflash", block_size, neural), summarise("ngram", block_size, lookup)
