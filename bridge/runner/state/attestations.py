"""Sign what this runner publishes, each result once and in order, across crashes.

The number and the digest of the attestation before come from the journal and go into the journal's next
``result_built`` line, so a number is given out exactly when a result is built for good: a runner killed before that
line gives the same number to the next result, one killed after it publishes this very result.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bridge.errors import InfrastructureError, UsageError
from bridge.limits import RESULT_MAX_BYTES
from bridge.records.bus import BusRecord, KeyRecord
from bridge.records.manifest import Manifest
from bridge.records.run import RunRecord
from bridge.records.verdict import Verdict
from bridge.runner.state.journal import Journal
from bridge.trust import runner_key as keys
from bridge.trust.attestation import ATTESTATION_FILE, ChainPosition, attest


@dataclass(frozen=True)
class Sealed:
    """A result tree with its attestation, and what the journal has to remember of it."""

    files: Mapping[str, bytes]
    detail: Mapping[str, str | int] = field(default_factory=dict)


class Attesting:
    """The runner's key and its chain.

    Args:
        folder: where the key is.
        name: the runner's name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._lock = threading.Lock()

    @property
    def has_key(self) -> bool:
        """Whether there is a key."""
        return keys.has_key(self._folder)

    @contextmanager
    def sealing(self, files: Mapping[str, bytes], ref: str, journal: Journal) -> Iterator[Sealed]:
        """Give out the next number for a tree; the caller writes the journal's ``result_built`` line before it leaves.

        Args:
            files: the whole tree; its manifest says whether an attestation belongs to it.
            ref: the request branch.
            journal: where the chain is kept.

        Raises:
            InfrastructureError: the key cannot be used.
        """
        if Manifest.parse(files["manifest.json"], max_bytes=RESULT_MAX_BYTES).attestation == "none":
            yield Sealed(files)
            return
        with self._lock:
            signer, _ = keys.load(self._folder, self._name)
            link = _next(journal)
            record = RunRecord.parse(files["run.json"], max_bytes=RESULT_MAX_BYTES, max_depth=32)
            verdict = Verdict.parse(files["verdict.json"], max_bytes=RESULT_MAX_BYTES, max_depth=32)
            envelope = attest(files, ref=ref, record=record, verdict=verdict, link=link, signer=signer)
            digest = hashlib.sha256(envelope).hexdigest()
            detail: dict[str, str | int] = {"sequence": link.sequence, "attestation": digest}
            yield Sealed({**files, ATTESTATION_FILE: envelope}, detail)


def _next(journal: Journal) -> ChainPosition:
    last = journal.attested
    return ChainPosition(
        chain=last.chain,
        sequence=last.sequence + 1,
        previous=last.digest,
        previous_run=last.run,
        void=last.void,
        journal=journal.head,
    )


def ensure_key(folder: Path, name: str) -> None:
    """Make a key when there is none."""
    if not keys.has_key(folder):
        keys.generate(folder, name)


def enrolled(record: BusRecord, folder: Path, *, sign: bool) -> BusRecord:
    """Return the bus record as it should be for this runner: its public keys in it, signing switched on if asked.

    Args:
        record: the record as it is.
        folder: where this runner's keys are.
        sign: switch signing on when this runner has a key.

    Raises:
        UsageError: the bus signs its results, and this runner cannot.
    """
    mine = keys.published(folder) if keys.has_key(folder) else ()
    if not mine and record.attestation == "dsse":
        raise UsageError(
            f"this bus signs its results and this runner has no key in {folder}",
            remedy="kakeya-runner keygen; the bus's owner adds what that prints: kakeya-runner trust add NAME=KEY",
        )
    if not mine or (record.attestation == "none" and not sign):
        return record
    known = {(key.name, key.public) for key in record.keys}
    added = tuple(key for key in mine if (key.name, key.public) not in known)
    if not added and record.attestation == "dsse":
        return record
    return record.evolve(attestation="dsse", keys=(*record.keys, *added))


def newest(folder: Path) -> KeyRecord:
    """Return the public record of the key in use.

    Raises:
        InfrastructureError: there is none.
    """
    records = keys.published(folder)
    if not records:
        raise InfrastructureError(f"there is no key in {folder}", remedy="kakeya-runner keygen")
    return records[-1]
