"""What a server's reply is worth: a draft, something to draw one from, or neither.

Tokens are drawn here and not there. So the distribution that a token is tested against is the one it was drawn from,
whatever the server computed or claims, and the output keeps the target's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.types import Draft, Ids, Proposal, Rows

BROKEN = "the remote drafter sent no usable draft"
ROUNDING = 1e-5
"""How far probabilities may be from 1 together: they were added in the server's own precision."""
MOST_REASON_CHARS = 200
Draw = Callable[[list[Proposal], list[float]], tuple[Ids, Rows]]
"""Draws an id from each proposal with a uniform each; returns them, and the proposals as rows of probabilities."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """What tokens may be drawn from, and how many seconds after the ask it came."""

    proposals: list[Proposal]
    came_s: float

    def drawn(self, draw: Draw, uniforms: list[float]) -> Draft:
        """Return the draft; called in the thread that decodes, since an array belongs to the thread that made it."""
        tokens, probs = draw(self.proposals, uniforms)
        return Draft(tokens, len(self.proposals), probs, came_s=self.came_s)


def read_reply(reply: pb.BlockDraft, count: int, vocab_size: int, most: int, came_s: float) -> Draft | Proposed:
    """Return what a server proposes for ``count`` tokens; ids that the target could not even look up are no draft.

    ``most`` is how many ids a distribution may have, 0 where tokens were asked for.
    """
    if most and reply.proposals:
        told = [(tuple(one.tokens), tuple(one.probabilities)) for one in reply.proposals]
        usable = len(told) <= count and all(_usable(*one, vocab_size, most) for one in told)
        return Proposed(list(told), came_s) if usable else Draft(skipped=BROKEN, came_s=came_s)
    tokens = tuple(reply.tokens)
    if len(tokens) > count or any(token >= vocab_size for token in tokens):
        return Draft(skipped=BROKEN, came_s=came_s)
    skipped = None if tokens else _reason(reply.skipped)
    return Draft(tokens, len(tokens), skipped=skipped, came_s=came_s)


def printable(told: str) -> str:
    """Return what a server says as it may reach a screen or a report: short, and nothing that acts on a terminal."""
    return "".join(one if one.isprintable() else "?" for one in told[:MOST_REASON_CHARS])


def _reason(told: str) -> str:
    return printable(told) if told else BROKEN


def _usable(ids: tuple[int, ...], probs: tuple[float, ...], vocab_size: int, most: int) -> bool:
    """Say whether a proposal is a distribution over ids that there are."""
    if not 0 < len(ids) <= most or len(probs) != len(ids) or len(set(ids)) != len(ids):
        return False
    sound = all(token < vocab_size for token in ids) and all(math.isfinite(prob) and prob > 0.0 for prob in probs)
    return sound and abs(sum(probs) - 1.0) <= ROUNDING
