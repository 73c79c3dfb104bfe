"""Run a depth policy on recorded or invented costs, without a model: what would it have cost?

A world says what a step at a depth costs at a position and which tokens a drafter would have got right there. The
replay takes the steps the policy chooses and compares the time with decoding every token plainly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.protocols import Depth
from engine.types import Outcome


@dataclass(frozen=True, slots=True)
class World:
    """``cost_s(depth, position)`` in seconds; ``right(position, offset)`` says whether the draft at offset is right."""

    cost_s: Callable[[int, int], float]
    right: Callable[[int, int], bool]
    longest: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy took for ``tokens`` tokens, and what plain decoding would have taken."""

    tokens: int
    time_s: float
    plain_s: float
    depths: tuple[int, ...]

    @property
    def ratio(self) -> float:
        """Speed against plain decoding; 1 is equal."""
        return self.plain_s / self.time_s


def replay(policy: Depth, world: World, tokens: int, start: int = 0) -> Replay:
    """Let ``policy`` decode ``tokens`` tokens from position ``start`` on."""
    position, produced, time_s, plain_s = start, 0, 0.0, 0.0
    depths: list[int] = []
    parked = 0
    while produced < tokens:
        depth = policy.choose(position, tokens - produced - 1) if parked == 0 else 0
        if depth == 0 and parked == 0:
            parked = min(policy.park(position), tokens - produced)
        accepted = 0
        while accepted < depth and world.right(position, accepted + 1):
            accepted += 1
        elapsed_s = world.cost_s(depth, position)
        time_s += elapsed_s
        plain_s += sum(world.cost_s(0, position + offset) for offset in range(accepted + 1))
        policy.record(position, depth, Outcome(tokens=(0,) * (accepted + 1), accepted=accepted), elapsed_s)
        depths.append(depth)
        position += accepted + 1
        produced += accepted + 1
        parked = max(0, parked - 1)
    return Replay(produced, time_s, plain_s, tuple(depths))


def best_fixed(world: World, tokens: int, start: int = 0) -> tuple[int, float]:
    """Return the fixed depth that would have been fastest, and its ratio."""
    from engine.decoding.depth import FixedDepth

    ratios = {depth: replay(FixedDepth(depth), world, tokens, start).ratio for depth in range(world.longest + 1)}
    best = max(ratios, key=lambda depth: ratios[depth])
    return best, ratios[best]
