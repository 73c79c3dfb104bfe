"""Speculative sampling in plain floats: the reference that backends are compared with.

The rule and its source are in ``engine.verification.rejection``. Uniform draws are arguments, so it is a function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.types import Decision

Row = Sequence[float]


def shape(logits: Row, temperature: float, top_k: int = 0, top_p: float = 1.0) -> list[float]:
    """Turn logits into the distribution that is sampled from.

    Order: temperature, then top-k, then top-p over what is left, then renormalise. The smallest set of most likely ids
    whose mass reaches ``top_p`` is kept, so at least one id survives.

    Args:
        logits: One row, ``[vocabulary]``.
        temperature: > 0; greedy decoding is another rule, not a limit of this one.
        top_k: Keep the k most likely ids; 0 keeps all.
        top_p: Keep the smallest set with at least this mass.
    """
    peak = max(logits)
    weights = [math.exp((value - peak) / temperature) for value in logits]
    order = sorted(range(len(weights)), key=lambda index: (-weights[index], index))
    if top_k > 0:
        order = order[:top_k]
    total = math.fsum(weights[index] for index in order)
    nucleus: list[int] = []
    mass = 0.0
    for index in order:
        nucleus.append(index)
        mass += weights[index] / total
        if mass >= top_p:
            break
    norm = math.fsum(weights[index] for index in nucleus)
    probabilities = [0.0] * len(weights)
    for index in nucleus:
        probabilities[index] = weights[index] / norm
    return probabilities


def draw(probabilities: Row, uniform: float) -> int:
    """Return the id whose cumulative interval contains ``uniform`` in [0, 1)."""
    mass = 0.0
    last = 0
    for index, value in enumerate(probabilities):
        if value > 0.0:
            last = index
            mass += value
            if uniform < mass:
                return index
    return last


def residual(target: Row, drafter: Row) -> list[float]:
    """Return the normalised positive part of target - drafter, or ``target`` when nothing is left of it."""
    positive = [max(p - q, 0.0) for p, q in zip(target, drafter, strict=True)]
    total = math.fsum(positive)
    return [value / total for value in positive] if total > 0.0 else list(target)


def decide(draft: Sequence[int], target: Sequence[Row], drafter: Sequence[Row], uniforms: Sequence[float]) -> Decision:
    """Apply the rule to one block.

    Args:
        draft: n proposed ids; id j was drawn from ``drafter[j]``.
        target: n + 1 target distributions.
        drafter: n drafter distributions; a deterministic proposal is a one-hot row.
        uniforms: n + 1 draws in [0, 1): one test per draft token, then one for the final draw.
    """
    for row, token in enumerate(draft):
        p, q = target[row][token], drafter[row][token]
        if uniforms[row] * q < p:
            continue
        recovered = draw(residual(target[row], drafter[row]), uniforms[-1])
        return Decision(tokens=(*draft[:row], recovered), accepted=row)
    return Decision(tokens=(*draft, draw(target[len(draft)], uniforms[-1])), accepted=len(draft))
