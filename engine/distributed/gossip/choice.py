"""Which drafter to ask, as far as cards say: who serves one, for which tokenizer, and whether it is here anyway.

What a link costs no card knows: `engine.distributed.placement` says whether asking pays, by terms measured over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.distributed.kakeya.v1 import capability_pb2 as pb

DRAFTER = "drafter"
"""The endpoint of a card at which its drafter is asked."""


@dataclass(frozen=True, slots=True)
class CardChoice:
    """What one card says of its drafter.

    Attributes:
        node: the card's.
        model: the drafter's name.
        address: where it is asked, on whichever machine carries it.
        any_tokenizer: whether it drafts for every target, as prompt lookup does.
        colocated: whether the target's own node serves it, so that nothing crosses a link.
        misfit: why it cannot draft for the target, empty where it can.
    """

    node: str
    model: str
    address: str
    any_tokenizer: bool
    colocated: bool
    misfit: str = ""


def drafters_of(cards: Iterable[pb.Card], here: str, tokenizer: str) -> list[CardChoice]:
    """Return what every card with a drafter says of it, those for one tokenizer first, then by name of their node.

    Args:
        cards: of all nodes that live.
        here: the target's own node.
        tokenizer: sha256 of the target's tokenizer.
    """
    choices = []
    for card in cards:
        address = card.endpoints.get(DRAFTER, "")
        for model in card.models if address else ():
            other = bool(model.tokenizer) and model.tokenizer != tokenizer
            misfit = f"its drafts are of another tokenizer, {model.tokenizer[:12]}" if other else ""
            any_tokenizer = not model.tokenizer
            choices.append(CardChoice(card.node, model.name, address, any_tokenizer, card.node == here, misfit))
    return sorted(choices, key=lambda choice: (choice.any_tokenizer, choice.node))
