"""The slots of a runner: how many runs go on at once, and which card each of them has.

A run has one card and no two runs share one, across restarts too: what a run was given stands in its folder for as long
as anything of it may go on. A Mac's one GPU belongs to all slots, so there is one unless the owner says more.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from bridge.errors import InfrastructureError
from bridge.executor.observe.accelerators.cards import Card
from bridge.executor.observe.accelerators.find import given_devices
from bridge.presets.facts import PolicyFacts
from bridge.runner.state import prepared

_CARD_NODE: Final = re.compile(r"/dev/nvidia[0-9]+")


class RunSlots:
    """The slots of one runner.

    Args:
        asked: how many the owner wants.
        cards: what they share out; None where there are cards and nobody names them.
        runs: the folders of the runs.
    """

    def __init__(self, asked: int, cards: tuple[Card, ...] | None, runs: Path) -> None:
        self._cards, self._runs = cards or (), runs
        self._count = 1 if cards is None else min(asked, len(cards)) if cards else asked
        self._taken: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many runs go on at once."""
        return self._count

    def assign(self, run_id: str, facts: PolicyFacts) -> PolicyFacts:
        """Return a run's rules with the card that is its own until `release`; unchanged where there are none.

        Raises:
            InfrastructureError: every card is another run's.
        """
        if not self._cards:
            return facts
        with self._lock:
            card = self._free(run_id)
            self._taken[run_id] = card.uuid
        others = {one.node for one in self._cards if one != card}
        nodes = (one for one in facts.devices if one == card.node or not _is_other(one, others, card))
        return replace(facts, card=card.uuid, devices=tuple(nodes))

    def release(self, run_id: str) -> None:
        """Give a run's card back, once nothing of it goes on."""
        with self._lock:
            self._taken.pop(run_id, None)

    def _free(self, run_id: str) -> Card:
        held = self._held() | self._taken
        mine = held.pop(run_id, None)
        free = [one for one in self._cards if one.uuid not in held.values()]
        card = next((one for one in free if one.uuid == mine), next(iter(free), None))
        if card is None:
            raise InfrastructureError(
                f"each of the {len(self._cards)} cards of this host is another run's", remedy="send it again later"
            )
        return card

    def _held(self) -> dict[str, str]:
        """Return the cards of the runs that have a folder: an earlier process of this runner may have begun them."""
        found: dict[str, str] = {}
        for folder in self._runs.iterdir():
            known = prepared.read(folder)
            if known is not None:
                given = given_devices(known.spec.environment)
                found |= {known.id: given[0]} if given else {}
        return found


def _is_other(node: str, others: set[str | None], card: Card) -> bool:
    """Whether a device node is that of another card; where nobody says which node is whose, every card's is."""
    return node in others or (card.node is None and _CARD_NODE.fullmatch(node) is not None)
