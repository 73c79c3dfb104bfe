"""Attest a result tree: an in-toto Statement in a DSSE envelope, signed by the runner's ed25519 key.

Subjects are exactly the other files of the tree, the manifest included. The predicate says which bus, request, claims,
run and verdict they belong to, and carries the runner's sequence number with the digest of its previous attestation: an
omitted or picked run shows as a gap. Formats: https://github.com/in-toto/attestation (Statement v1), https://github.com/secure-systems-lab/dsse.

Knows no disk, no bus, and not whose a key is. A signature proves which key signed, not that the statement is true.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from bridge import strictjson
from bridge.errors import IntegrityError
from bridge.limits import RESULT_MAX_BYTES

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

    from bridge.records.run import RunRecord
    from bridge.records.verdict import StoredVerdict, Verdict
    from bridge.trust.signing_key import MetadataSigner

ATTESTATION_FILE = "attestation.dsse.json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:kakeya:result:v1"
ENVELOPE_MAX_BYTES = 4 * 1024 * 1024
FIRST = "0" * 64  # stands for the digest before the first attestation and journal line


@dataclass(frozen=True)
class ChainPosition:
    """A runner's place in its own chain.

    Attributes:
        chain: names the chain: digest of the first line of the runner's journal.
        sequence: number of this attestation, 1 for the first.
        previous: sha256 of the attestation before, zeros for the first.
        previous_run: the run of the attestation before, None for the first.
        void: numbers of attestations that were made and never published, because another runner ended the run.
        journal: head of the runner's journal when this one was made.
    """

    chain: str
    sequence: int
    previous: str = FIRST
    previous_run: str | None = None
    void: tuple[int, ...] = ()
    journal: str = FIRST

    def data(self) -> dict[str, Any]:
        """Return it as the predicate states it."""
        return {
            "chain": self.chain,
            "sequence": self.sequence,
            "previous": self.previous,
            "previous_run": self.previous_run,
            "void": list(self.void),
            "journal_head": self.journal,
        }


@dataclass(frozen=True)
class Attested:
    """The content of an envelope.

    Attributes:
        key: which of the keys that were tried signed it, None where none did: then nothing in it is believed.
        digest: sha256 of the envelope.
    """

    key: str | None
    link: ChainPosition
    digest: str
    predicate: Mapping[str, Any]
    subjects: Any = None

    @property
    def run(self) -> str:
        """The run it is about."""
        return str(self.predicate["run"])

    @property
    def runner(self) -> str:
        """The runner it names."""
        return str(self.predicate["runner"])


def attest(
    files: Mapping[str, bytes],
    *,
    ref: str,
    record: RunRecord,
    verdict: Verdict,
    link: ChainPosition,
    signer: MetadataSigner,
) -> bytes:
    """Return the envelope of a result tree, canonical JSON.

    Args:
        files: the whole tree without an attestation, `manifest.json` included.
        ref: the request branch.
        record: what happened.
        verdict: what the gate said.
        link: this runner's next place in its chain.
        signer: the runner's key.
    """
    from securesystemslib.dsse import Envelope

    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": path, "digest": {"sha256": _digest(data)}} for path, data in sorted(files.items())],
        "predicateType": PREDICATE_TYPE,
        "predicate": _predicate(ref, record, verdict, link),
    }
    envelope = Envelope(strictjson.encode(statement), PAYLOAD_TYPE, {})
    envelope.sign(cast("Signer", signer))
    return strictjson.encode(envelope.to_dict())


def verify_attestation(files: Mapping[str, bytes], keys: Iterable[str]) -> Attested:
    """Return a tree's attestation after comparing it with the tree; whether its key counts is for the caller to ask.

    Args:
        files: the whole tree, the attestation included.
        keys: the public keys that this reader knows, base64; never taken from the tree.

    Raises:
        IntegrityError: missing, malformed, or about other bytes.
    """
    if ATTESTATION_FILE not in files:
        raise IntegrityError("the result carries no attestation", remedy="ask the host's owner whether it was removed")
    attested = open_attestation(files[ATTESTATION_FILE], keys)
    rest = {path: content for path, content in files.items() if path != ATTESTATION_FILE}
    _compare_subjects(attested.subjects, rest)
    _compare_predicate(attested, rest)
    return attested


def open_attestation(data: bytes, keys: Iterable[str]) -> Attested:
    """Return the content of an envelope, and which of these keys signed it; it is not compared with a tree.

    Raises:
        IntegrityError: malformed.
    """
    payload, key = _opened(data, keys)
    statement = _statement(payload)
    predicate = statement["predicate"]
    return Attested(key, _link(predicate), _digest(data), predicate, statement["subject"])


def _predicate(ref: str, record: RunRecord, verdict: Verdict | StoredVerdict, link: ChainPosition) -> dict[str, Any]:
    return {
        "bus_id": record.bus_id,
        "ref": ref,
        "run": record.id,
        "request": {"sha256": record.request_digest, "commit": record.request_oid},
        "claims": list(record.claims),
        "runner": record.runner,
        "trust_class": record.code.trust_class if record.code else "none",
        "sandbox": record.sandbox.model_dump(mode="json"),
        "labels": list(record.labels),
        "attempt": record.attempt.model_dump(mode="json") if record.attempt else None,
        "log": {"sha256": record.log_sha256, "bytes": record.log_bytes},
        "verdict": verdict.decision,
        "gate": verdict.gate.model_dump(mode="json"),
        "policy_digest": record.policy_digest,
        **link.data(),
    }


def _opened(data: bytes, keys: Iterable[str]) -> tuple[bytes, str | None]:
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    from bridge.trust.signing_key import verifying_key

    try:
        envelope = Envelope.from_dict(strictjson.decode(data, max_bytes=ENVELOPE_MAX_BYTES))
        canonical = strictjson.encode(envelope.to_dict())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"{ATTESTATION_FILE} is no DSSE envelope: {type(error).__name__}") from error
    if canonical != data:
        raise IntegrityError(f"{ATTESTATION_FILE} is not in canonical form")
    if len(envelope.signatures) != 1:
        raise IntegrityError(f"{ATTESTATION_FILE} carries {len(envelope.signatures)} signatures, expected one")
    if envelope.payload_type != PAYLOAD_TYPE:
        raise IntegrityError(f"{ATTESTATION_FILE} holds {envelope.payload_type!r}, expected {PAYLOAD_TYPE!r}")
    for key in keys:
        try:
            envelope.verify([verifying_key(key)], 1)
        except VerificationError:
            continue
        return envelope.payload, key
    return envelope.payload, None


def _statement(payload: bytes) -> dict[str, Any]:
    try:
        value = strictjson.decode(payload, max_bytes=ENVELOPE_MAX_BYTES)
    except strictjson.StrictJsonError as error:
        raise IntegrityError(f"{ATTESTATION_FILE} holds no JSON statement: {error}") from error
    expected = {"_type": STATEMENT_TYPE, "predicateType": PREDICATE_TYPE}
    if not isinstance(value, dict) or set(value) != {*expected, "subject", "predicate"}:
        raise IntegrityError(f"{ATTESTATION_FILE} holds no in-toto statement of exactly the known fields")
    for field, required in expected.items():
        if value[field] != required:
            raise IntegrityError(f"{ATTESTATION_FILE}: {field} is {value[field]!r}, expected {required!r}")
    return value


def _compare_subjects(subjects: object, files: Mapping[str, bytes]) -> None:
    actual = {path: _digest(data) for path, data in files.items()}
    try:
        stated = {entry["name"]: entry["digest"]["sha256"] for entry in subjects}  # type: ignore[attr-defined]
        paths = sorted(stated.keys() | actual.keys())
    except (TypeError, KeyError) as error:  # also where a name is no text
        raise IntegrityError(f"{ATTESTATION_FILE}: its subjects are malformed") from error
    for path in paths:
        if path not in actual:
            raise IntegrityError(f"{path} is attested and missing")
        if path not in stated:
            raise IntegrityError(f"{path} is not attested")
        if stated[path] != actual[path]:
            raise IntegrityError(f"{path} has sha256 {actual[path]}, attested was {stated[path]}")


def _compare_predicate(attested: Attested, files: Mapping[str, bytes]) -> None:
    from bridge.records.run import RunRecord
    from bridge.records.verdict import StoredVerdict

    predicate = attested.predicate
    try:
        record = RunRecord.parse(files["run.json"], max_bytes=RESULT_MAX_BYTES, max_depth=32)
        verdict = StoredVerdict.parse(files["verdict.json"], max_bytes=RESULT_MAX_BYTES, max_depth=32)
        expected = _predicate(_stated_ref(predicate, files), record, verdict, attested.link)
    except (KeyError, TypeError, ValueError) as error:
        raise IntegrityError(
            f"the attested tree holds no readable request, record or verdict: {type(error).__name__}"
        ) from error
    for field in sorted(expected.keys() | set(predicate)):
        if field not in predicate or field not in expected or predicate[field] != expected[field]:
            raise IntegrityError(f"{ATTESTATION_FILE}: {field} does not agree with the files of the result")


def _stated_ref(predicate: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """Return the branch the request itself names; where it is no request, the branch that the runner stated."""
    from bridge.records.request import Request

    try:
        return Request.parse(files["request.json"]).ref
    except (KeyError, ValueError):
        return str(predicate["ref"])


def _link(predicate: Any) -> ChainPosition:
    try:
        link = ChainPosition(
            chain=predicate["chain"],
            sequence=predicate["sequence"],
            previous=predicate["previous"],
            previous_run=predicate["previous_run"],
            void=tuple(predicate["void"]),
            journal=predicate["journal_head"],
        )
        numbers = (link.sequence, *link.void)
        texts = (link.chain, link.previous, link.journal, predicate["run"], predicate["runner"])
    except (KeyError, TypeError) as error:
        raise IntegrityError(f"{ATTESTATION_FILE}: its place in the runner's chain is malformed") from error
    if not all(type(number) is int for number in numbers) or not all(type(text) is str for text in texts):
        raise IntegrityError(f"{ATTESTATION_FILE}: its place in the runner's chain is malformed")
    return link


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
