"""Row costs that others measured on GPUs, and how near the controller comes to the best fixed depth on them.

Curves are of public issue threads of mlx: 4265 (M3 Ultra in bf16, which steps at two rows, and in 4 bits, which has a
valley behind seven rows), 3852 (M4 Pro), 3863 (M3 Max) and 3791 (M5 Max), all in 4 bits; a flat one stands for a GPU
that reads its weights once for a whole block.
"""

from __future__ import annotations

import random
from functools import cache
from statistics import mean

from engine.decoding.controller import ControlledDepth
from tests.fakes.replay import World, best_fixed, replay

CURVES = {
    "flat": {1: 1, 16: 1.05},
    "two steps": {1: 1, 2: 1.99, 16: 2.0},
    "valley": {1: 1, 2: 1.83, 4: 3.26, 7: 5.28, 8: 6.12, 16: 6.32},
    "M4 Pro": {1: 1, 2: 1.0, 3: 1.13, 4: 1.43, 5: 1.75, 8: 2.84, 10: 4.5, 16: 4.5},
    "M3 Max": {1: 1, 2: 1, 4: 1.28, 6: 2.04, 8: 2.5, 9: 3.14, 10: 3.94, 16: 3.95},
    "M5 Max": {1: 1, 3: 1.11, 5: 1.42, 8: 2.2, 12: 3.86, 16: 3.9},
}
ACCEPTED = (0.6, 0.75, 0.85, 0.93)
LONGEST, STEP_S, DRAFT, SEEDS = 15, 0.03, 0.15, 5
TABLE_ROWS = (1, 2, 4, 8, 16)
NOISE = tuple(random.Random(7).gauss(1, 0.03) for _ in range(4096))


def cost_of(curve: dict[int, float], rows: int) -> float:
    """Return plain steps that a forward takes, on the line between the rows that were measured."""
    below, above = max(size for size in curve if size <= rows), min(size for size in curve if size >= rows)
    share = 0.0 if above == below else (rows - below) / (above - below)
    return curve[below] + share * (curve[above] - curve[below])


@cache
def world(name: str, accepted: float, seed: int) -> World:
    """Return a tenth of host time a step, 3 % of noise, and a draft that takes 15 % of a plain step."""
    chooser = random.Random(seed)
    right = [chooser.random() < accepted for _ in range(8192)]
    rows = [0.1 + 0.9 * cost_of(CURVES[name], depth + 1) for depth in range(LONGEST + 1)]

    def cost_s(depth: int, position: int) -> float:
        noise = NOISE[(depth * 131 + position * 7 + seed * 977) & 4095]
        return STEP_S * (rows[depth] + (DRAFT if depth else 0.0)) * noise

    return World(
        cost_s,
        lambda depth, position: STEP_S * DRAFT if depth else 0.0,
        lambda position, offset: right[(position + offset) & 8191],
        LONGEST,
    )


def measured(played: World) -> dict[str, dict[int, float]]:
    """Return the table of costs as one step of each size gave it."""
    return {"": {rows: played.cost_s(rows - 1, rows) for rows in TABLE_ROWS}}


def share(name: str, accepted: float, tokens: int, *, read: bool) -> float:
    """Return the speed as a share of the best fixed depth's, over several drawn texts."""
    shares = []
    for seed in range(SEEDS):
        played = world(name, accepted, seed)
        policy = ControlledDepth(LONGEST, measured(played) if read else None)
        shares.append(replay(policy, played, tokens).ratio / _best(name, accepted, seed, tokens))
    return mean(shares)


@cache
def _best(name: str, accepted: float, seed: int, tokens: int) -> float:
    return best_fixed(world(name, accepted, seed), tokens)[1]
