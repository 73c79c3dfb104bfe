"""Verify claims, beacons and log heads with the keys this reader pins; without a pin no signature is checked.

The same keys, from the same places, as for results: see `bridge.client.connection.pins`. They are looked up when the
first signature is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

from bridge.client.connection.pins import Pins
from bridge.records import KeyRecord
from bridge.trust.attestation import is_available, key_id
from bridge.trust.keyring import signer_of, with_successors
from bridge.trust.seals import UNVERIFIED, VERIFIED, Seal, SignatureState, Statement

_SHOWN_COUNT: Final = 2


class PinnedSeals:
    """Implements `bridge.trust.seals.Seals` for a requester, who signs none of these.

    Args:
        look_up: returns what this reader goes by; called once, if at all.
    """

    def __init__(self, look_up: Callable[[], Pins]) -> None:
        self._look_up = look_up

    @cached_property
    def _pins(self) -> Pins:
        return self._look_up()

    @property
    def verifies(self) -> bool:
        """Whether signatures are demanded here: a key is pinned, and there is what is needed to check by it."""
        return bool(self._pins.keys) and is_available()

    def sign(self, statement: Statement) -> Seal | None:
        """Return None: a requester writes no such ref."""
        del statement
        return None

    def verify(self, statement: Statement, seal: Seal | None, offered: Sequence[KeyRecord]) -> SignatureState:
        """Return the state of a seal; see the interface."""
        if not self.verifies:
            return UNVERIFIED
        if seal is None:
            return SignatureState("refused", f"it is not signed, and {self._expected()} signs")
        trusted = with_successors(self._pins.keys, offered)
        if seal.runner == statement.runner:
            trusted = tuple(key for key in trusted if key.name == seal.runner)
            found = signer_of(statement.payload_type, statement.payload(), seal.signature, trusted)
            if found is not None:
                return VERIFIED
        return SignatureState("refused", f"not signed for this place by {statement.runner} with {self._expected()}")

    def _expected(self) -> str:
        ids = " or ".join(key_id(key.public)[:16] for key in self._pins.keys[:_SHOWN_COUNT])
        return f"the pinned key {ids} ({self._pins.where})"
