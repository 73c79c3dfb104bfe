"""This runner's seals: sign with the key it had when it started, verify other runners with the keys it knows.

It knows its own key and those that the owner pins in `runner_keys`; with a pin, every runner must sign. Without one it
trusts a key on first use: that of a runner whose signature fits a key in the bus record. Such a key is written down, so
that neither a changed bus record nor an unsigned claim undoes it; a runner that never signed (an older version, or one
without a key) goes on unsigned. A new key of a known runner is trusted when a known key signed it as its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.errors import InfrastructureError, KakeyaError, install_remedy
from bridge.records import KeyRecord
from bridge.system.durable import write_atomically
from bridge.trust import runner_key as keys
from bridge.trust.attestation import is_available
from bridge.trust.keyring import decode, encode, pinned, sign, signer_of, with_successors
from bridge.trust.seals import UNVERIFIED, VERIFIED, Seal, SignatureState, Statement

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KNOWN_FILE: Final = "known-runners.json"
KNOWN_MAX_COUNT: Final = 256


class RunnerSeals:
    """Implements `bridge.trust.seals.Seals` for one runner.

    Args:
        folder: its state folder, with its key and the keys of the runners it met.
        name: its name.
        demanded: keys the owner pins, ``NAME=KEY``; without any, a runner that never signed need not sign.
        say: told when a runner's key is learnt; None for a reader that learns no key.

    Raises:
        InfrastructureError: the key, or the list of known keys, cannot be used.
    """

    def __init__(
        self, folder: Path, name: str, *, demanded: Sequence[str] = (), say: Callable[[str], None] | None
    ) -> None:
        self._name, self._say = name, say
        self._key: Ed25519PrivateKey | None = keys.private(folder) if (folder / keys.KEY_FILE).exists() else None
        self._own = keys.published(folder) if self._key is not None else ()
        self._pinned = tuple(pinned(text, "runner_keys") for text in demanded)
        self._path = folder / KNOWN_FILE
        self._known = _read(self._path)

    verifies = True

    @property
    def signs(self) -> bool:
        """Whether there is a key to sign with."""
        return self._key is not None

    def sign(self, statement: Statement) -> Seal | None:
        """Return this runner's seal, or None for a statement that names another runner."""
        if self._key is None or statement.runner != self._name:
            return None
        return Seal(self._name, sign(statement.payload_type, statement.payload(), self._key))

    def verify(self, statement: Statement, seal: Seal | None, offered: Sequence[KeyRecord]) -> SignatureState:
        """Return the state of a seal; see the interface."""
        runner = statement.runner
        if runner == self._name and self._own:
            return self._compare(statement, seal, self._own)
        if self._pinned:
            trusted = with_successors((*self._pinned, *self._own), (*offered, *self._known))
            return self._compare(statement, seal, [key for key in trusted if key.name == runner])
        of_name = [key for key in offered if key.name == runner]
        known = [key for key in self._known if key.name == runner]
        if known:
            return self._compare(statement, seal, with_successors(known, of_name))
        signer = self._signer(statement, seal, of_name)
        if signer is None:
            return UNVERIFIED if seal is None else SignatureState("unverified", f"signed by no key known of {runner}")
        self._learn(signer)
        return VERIFIED

    def _compare(self, statement: Statement, seal: Seal | None, trusted: Sequence[KeyRecord]) -> SignatureState:
        if seal is None:
            return SignatureState("refused", f"not signed, and {statement.runner or 'its runner'} signs")
        signer = self._signer(statement, seal, trusted)
        if signer is None:
            return SignatureState(
                "refused", f"not signed by a key of {statement.runner or 'its runner'} for this place"
            )
        if signer.vouched_by is not None and signer not in self._known and signer not in self._own:
            self._learn(signer)  # with its predecessor's signature, which the bus record may lose
        return VERIFIED

    def _signer(self, statement: Statement, seal: Seal | None, trusted: Sequence[KeyRecord]) -> KeyRecord | None:
        if seal is None or seal.runner != statement.runner:
            return None
        return signer_of(statement.payload_type, statement.payload(), seal.signature, trusted)

    def _learn(self, key: KeyRecord) -> None:
        if self._say is None or len(self._known) >= KNOWN_MAX_COUNT:
            return
        self._known = (*self._known, key)
        write_atomically(self._path, encode(self._known))
        self._say(f"runner {key.name} signs: from now on only what its keys sign counts as its")


def seals_of(
    folder: Path, name: str, *, demanded: Sequence[str] = (), say: Callable[[str], None] | None
) -> RunnerSeals | None:
    """Return the seals of a runner, None where the packages are missing and nothing is demanded.

    Raises:
        InfrastructureError: signatures are demanded and cannot be checked here, or the key cannot be used.
    """
    if is_available():
        return RunnerSeals(folder, name, demanded=demanded, say=say)
    if demanded:
        raise InfrastructureError(
            "runner_keys demands signatures, and the packages to check them are not installed",
            remedy=install_remedy("trust"),
        )
    return None


def _read(path: Path) -> tuple[KeyRecord, ...]:
    if not path.exists():
        return ()
    try:
        return decode(path.read_bytes())
    except (OSError, ValueError, KakeyaError) as error:
        raise InfrastructureError(
            f"{path} is no list of keys", remedy=f"remove it: the runners' keys are learnt again ({path})"
        ) from error
