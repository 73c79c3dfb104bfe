"""Whether a drafter elsewhere is worth asking, and which: one inequality over terms that were all measured.

``E[committed] * t_plain > t_verify + max(0, t_draft + t_link - overlap)`` by a margin, where ``t_link`` is what a draft
takes on its way: the round trip and the bytes of its rows. Knows neither how a term was measured nor whom to ask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    """What was measured of one drafter: seconds, and the tokens that a step with its draft commits on average.

    ``overlap_s`` is how much of the wait the target decodes in meanwhile. ``misfit`` says why it cannot draft here,
    empty where it can.
    """

    node: str
    committed: float
    verify_s: float
    draft_s: float
    link_s: float
    overlap_s: float = 0.0
    misfit: str = ""

    @property
    def step_s(self) -> float:
        """Seconds of a step with its draft."""
        return self.verify_s + max(0.0, self.draft_s + self.link_s - self.overlap_s)

    def unmeasured(self, plain_s: float) -> str:
        """Return which term is no measurement, empty where all are: a time that is none would win or lose by itself."""
        terms = {
            "committed": (self.committed, 1.0),
            "plain": (plain_s, MOMENT_S),
            "verify": (self.verify_s, MOMENT_S),
            "draft": (self.draft_s, 0.0),
            "link": (self.link_s, -LINK_NOISE_S),
            "overlap": (self.overlap_s, 0.0),
        }
        return ", ".join(name for name, (value, least) in terms.items() if not least <= value < math.inf)

    def gain(self, plain_s: float) -> float:
        """Return the speed with it against plain decoding, 0 where it cannot draft or a term was not measured."""
        if self.misfit or self.unmeasured(plain_s):
            return 0.0
        return self.committed * plain_s / self.step_s


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
    """Return the inequality of one drafter with every term."""
    if terms.misfit:
        return f"{terms.node}: {terms.misfit}"
    unmeasured = terms.unmeasured(plain_s)
    if unmeasured:
        return f"{terms.node}: {unmeasured} not measured"
    left, gain = terms.committed * plain_s, terms.gain(plain_s)
    verdict = "worth it" if gain >= MARGIN else f"below the margin of {MARGIN:.2f}"
    return (
        f"{terms.node}: {terms.committed:.2f} committed x {1e3 * plain_s:.1f} ms plain = {1e3 * left:.1f} ms against "
        f"{1e3 * terms.verify_s:.1f} verify + max(0, {1e3 * terms.draft_s:.1f} draft + {1e3 * terms.link_s:.1f} link - "
        f"{1e3 * terms.overlap_s:.1f} overlap) = {1e3 * terms.step_s:.1f} ms: {gain:.2f}x, {verdict}"
    )
