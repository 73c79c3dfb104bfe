"""Seal with this side's key, if it has one, and judge the seals of others by what it knows about keys.

Runners and requesters use the same class; they differ in their authority: a root, pins, or only the runner's own key.
Which key made a signature is remembered, as the next poll brings the same commits; whether it counts is asked anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bridge.trust.judgement import UNCHECKED, KeyAuthority, Signed, TrustAnswer, may_say
from bridge.trust.keyring import sign, signer_of
from bridge.trust.seals import Seal, Statement

if TYPE_CHECKING:
    from bridge.trust.signing_key import SigningKey

REMEMBERED_MAX_COUNT: Final = 20_000


class KeySeals:
    """Implements `bridge.trust.seals.Seals`.

    Args:
        authority: returns what this side knows about keys; asked for each seal, so it may change.
        name: the runner that signs here, None for a side that writes nothing.
        key: its key, None where it has none.
    """

    def __init__(
        self, authority: Callable[[], KeyAuthority], *, name: str | None = None, key: SigningKey | None = None
    ) -> None:
        self._authority, self._name, self._key = authority, name, key
        self._signers: dict[tuple[str, str, bytes], str] = {}

    @property
    def verifies(self) -> bool:
        """Whether this side knows a runner's key."""
        return bool(self._authority().of("runner"))

    @property
    def signs(self) -> bool:
        """Whether there is a key to sign with."""
        return self._key is not None

    def sign(self, statement: Statement) -> Seal | None:
        """Return this runner's seal, or None without a key and for a statement that names another runner."""
        if self._key is None or statement.runner != self._name:
            return None
        return Seal(self._name, sign(statement.payload_type, statement.payload(), self._key))

    def verify(self, statement: Statement, seal: Seal | None, *, follows_signed: bool = False) -> TrustAnswer:
        """Return whether this seal lets its runner say this here; see the interface."""
        if not self.verifies and not follows_signed:
            return UNCHECKED
        authority = self._authority()
        return may_say(
            authority,
            Signed(
                statement.kind,
                statement.runner,
                present=seal is not None,
                key=self._signer(authority, statement, seal),
                at=statement.at,
                follows_signed=follows_signed,
                archived_at=statement.archived_at,
            ),
        )

    def _signer(self, authority: KeyAuthority, statement: Statement, seal: Seal | None) -> str | None:
        """Return the known key that made a seal over this statement, None when none did."""
        if seal is None or seal.runner != statement.runner or not self.verifies:
            return None
        payload = statement.payload()
        cache_key = (seal.signature, statement.payload_type, payload)
        signer = self._signers.get(cache_key)
        if signer is None:
            keys = dict.fromkeys(key.key for key in authority.of("runner"))
            signer = signer_of(statement.payload_type, payload, seal.signature, keys)
            if signer is not None and len(self._signers) < REMEMBERED_MAX_COUNT:
                self._signers[cache_key] = signer
        return signer
