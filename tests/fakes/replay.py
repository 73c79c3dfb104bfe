"""Run a depth policy on recorded or invented costs, without a model: what would it have cost?

A world says what a step at a depth costs at a position and which tokens a drafter would have got right there. The
replay takes the steps the policy chooses and compares the time with decoding every token plainly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.protocols import Depth
from engine.types import Decision


@dataclass(frozen=True, slots=True)
class World:
    """What steps cost and which drafts are right.

    ``cost_s(depth, position)`` is a step's time in seconds, ``draft_s(depth, position)`` that of its draft alone;
    ``right(position, offset)`` says whether the draft at an offset is right.
    """

    cost_s: Callable[[int, int], float]
    draft_s: Callable[[int, int], float]
    right: Callable[[int, int], bool]
    longest: int

    def accepted(self, position: int, count: int) -> int:
        """Return how many of ``count`` tokens drafted at a position are right before the first wrong one."""
        return next((offset for offset in range(count) if not self.right(position, offset + 1)), count)


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
    position, time_s, plain_s = start, 0.0, 0.0
    depths: list[int] = []

    def step(depth: int, extra_s: float = 0.0) -> None:
        nonlocal position, time_s, plain_s
        accepted = world.accepted(position, depth)
        elapsed_s = extra_s + world.cost_s(depth, position)
        time_s += elapsed_s
        plain_s += sum(world.cost_s(0, position + offset) for offset in range(accepted + 1))
        policy.record(position, depth, Decision(tokens=(0,) * (accepted + 1), accepted=accepted), elapsed_s)
        depths.append(depth)
        position += accepted + 1

    while position - start < tokens:
        depth = policy.choose(position, start + tokens - position - 1, lambda: None).count
        if depth > 0:
            step(depth)
            continue
        pause, begun = policy.park(position), position
        length = min(pause.tokens, start + tokens - position)
        shadow = min(pause.shadow, length)
        while position - begun < length:
            step(0, world.draft_s(shadow, begun) if shadow and position == begun else 0.0)
            if position - begun == shadow and policy.shadowed(shadow, world.accepted(begun, shadow)):
                break
    return Replay(position - start, time_s, plain_s, tuple(depths))


def best_fixed(world: World, tokens: int, start: int = 0) -> tuple[int, float]:
    """Return the fixed depth that would have been fastest, and its ratio."""
    from engine.decoding.depth import FixedDepth

    ratios = {depth: replay(FixedDepth(depth), world, tokens, start).ratio for depth in range(world.longest + 1)}
    best = max(ratios, key=lambda depth: ratios[depth])
    return best, ratios[best]
