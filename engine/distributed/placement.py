"""Whether a drafter elsewhere is worth asking, and which: what the decoding loop would make of measured terms.

`engine.decoding.awaiting.best_way` says whether a draft is waited for or overtaken, here as there; a drafter must be
better than plain decoding by a margin. Knows neither how a term was measured nor whom to ask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.decoding.awaiting import best_way
from engine.decoding.estimates import Acceptance

MARGIN = 1.10
"""How much better than plain decoding a drafter must be."""
STAYING = 1.05
"""How much better than the one in use another must be, so that noise does not move it."""


MOMENT_S = 1e-9
"""What a forward takes at least."""
LINK_NOISE_S = 1e-3
"""How far below nothing a link may come out: it is what an answer took without what its server says it computed."""


@dataclass(frozen=True, slots=True)
class DrafterTerms:
    """What was measured of one drafter: seconds, and how often each token of a draft was right, those before it being.

    ``verify_s`` is a forward over the whole draft. ``misfit`` says why it cannot draft here, empty where it can.
    """

    node: str
    accepted: tuple[float, ...]
    verify_s: float
    draft_s: float
    link_s: float
    misfit: str = ""

    @property
    def latency_s(self) -> float:
        """Seconds from an ask to its draft."""
        return max(0.0, self.draft_s + self.link_s)

    def unmeasured(self, plain_s: float) -> str:
        """Return which term is no measurement, empty where all are: a time that is none would win or lose by itself."""
        terms = {
            "plain": (plain_s, MOMENT_S),
            "verify": (self.verify_s, MOMENT_S),
            "draft": (self.draft_s, 0.0),
            "link": (self.link_s, -LINK_NOISE_S),
        }
        wrong = [name for name, (value, least) in terms.items() if not least <= value < math.inf]
        rates = bool(self.accepted) and all(0.0 <= rate <= 1.0 for rate in self.accepted)
        return ", ".join(wrong if rates else ["accepted", *wrong])

    def best(self, plain_s: float) -> Best:
        """Return the best a drafter can be used, by what the loop itself asks."""
        longest = len(self.accepted)
        acceptance = Acceptance(list(self.accepted), [1] * longest)
        row_s = (self.verify_s - plain_s) / longest

        def verify_s(count: int) -> float:
            return max(MOMENT_S, plain_s + row_s * count)

        ways = {
            depth: best_way(acceptance, depth, self.latency_s, plain_s, verify_s) for depth in range(1, longest + 1)
        }
        depth = max(ways, key=lambda depth: ways[depth].rate)
        return Best(depth, acceptance.committed(depth), ways[depth].wait_s > 0.0, ways[depth].rate * plain_s)

    def gain(self, plain_s: float) -> float:
        """Return the speed with it against plain decoding, 0 where it cannot draft or a term was not measured."""
        if self.misfit or self.unmeasured(plain_s):
            return 0.0
        return self.best(plain_s).gain


@dataclass(frozen=True, slots=True)
class Best:
    """How a drafter is used best: tokens a draft, what a draft commits, whether it is waited for, and the speed."""

    depth: int
    committed: float
    waits: bool
    gain: float


@dataclass(frozen=True, slots=True)
class PlacementSnapshot:
    """What is known at one moment: seconds of a plain step, drafters in any order, the node in use if there is one."""

    plain_s: float
    drafters: tuple[DrafterTerms, ...]
    in_use: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """The node to ask, None for no remote drafter; and each node's terms as a line, by name."""

    node: str | None
    reasons: tuple[str, ...]


def plan(snapshot: PlacementSnapshot) -> Placement:
    """Return the drafter to ask: the best by the margin, the one in use unless another is clearly better."""
    ordered = sorted(snapshot.drafters, key=lambda terms: terms.node)
    gains = {terms.node: terms.gain(snapshot.plain_s) for terms in ordered}
    reasons = tuple(_reason(terms, snapshot.plain_s) for terms in ordered)
    # Of equal ones the first by name: every node that sees the same snapshot answers the same.
    best = max(gains, key=lambda node: gains[node], default=None)
    held = snapshot.in_use
    if held in gains and best is not None and gains[best] < STAYING * gains[held]:
        best = held
    if best is None or gains[best] < MARGIN:
        return Placement(None, reasons)
    return Placement(best, reasons)


def _reason(terms: DrafterTerms, plain_s: float) -> str:
    """Return what is expected of one drafter, with every term."""
    if terms.misfit:
        return f"{terms.node}: {terms.misfit}"
    unmeasured = terms.unmeasured(plain_s)
    if unmeasured:
        return f"{terms.node}: {unmeasured} not measured"
    best = terms.best(plain_s)
    verdict = "worth it" if best.gain >= MARGIN else f"below the margin of {MARGIN:.2f}"
    meanwhile = "waiting for it" if best.waits else "decoding meanwhile"
    return (
        f"{terms.node}: {best.committed:.2f} tokens by a draft of {best.depth}, {1e3 * plain_s:.1f} ms plain, "
        f"{1e3 * terms.verify_s:.1f} verify of {len(terms.accepted)}, {1e3 * terms.draft_s:.1f} draft + "
        f"{1e3 * terms.link_s:.1f} link, {meanwhile}: {best.gain:.2f}x, {verdict}"
    )
