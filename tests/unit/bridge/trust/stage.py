"""The stage of the attack matrix: a root, everybody's keys, genuine records, and readers who know different things."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus.content.commits import claim_commit
from bridge.publish import build_tree
from bridge.records.bus import BusRecord
from bridge.records.claim import Claim
from bridge.records.request import Request
from bridge.trust.attestation import ATTESTATION_FILE, ChainPosition, attest
from bridge.trust.judgement import NOBODY, KeyAuthority, NamedKey
from bridge.trust.key_seals import KeySeals
from bridge.trust.root import RootContent, TrustRoot, fingerprint, read_root, write_root
from bridge.trust.root_memory import RootMemory
from bridge.trust.seals import SealedKind, Statement, latest_time_of
from bridge.trust.signing_key import MetadataSigner, SigningKey, make_key, public_text
from bridge.trust.ssh_signatures import NAMESPACE, sign
from tests.fakes.asking import make_request
from tests.fakes.memory_bus import BUS_ID, bus_record
from tests.unit.bridge.publish.records import DERIVED, RECORD, SPEC, VERDICT

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
HOUR = 3600.0
REF = f"refs/kakeya/claim/{'0' * 26}"
OTHER_BUS = "f" * 32


class RealClock:
    """The present, as the stage has it."""

    def now(self) -> dt.datetime:
        return NOW


@dataclass
class Stage:
    """Keys by actor, the owner's root, and the files of an earlier one."""

    folder: Path
    keys: dict[str, SigningKey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("hosta", "other_runner", "retired", "revoked", "former_owner", "owner", "pusher", "remote",
                 "requester", "alice")  # fmt: skip
        self.keys = {name: make_key(self.folder / name, "openssh") for name in names}
        for name, key in self.keys.items():
            (self.folder / f"{name}.pub").write_text(f"{public_text(key)}\n")
        at = NOW.timestamp()
        runners = (
            NamedKey("hosta", self.keys["hosta"].public, since=at - 9 * HOUR),
            NamedKey("hosta", self.keys["retired"].public, since=at - 9 * HOUR, until=at - HOUR),
            NamedKey("hosta", self.keys["revoked"].public, since=at - 9 * HOUR),
            NamedKey("hostb", self.keys["other_runner"].public, since=at - 9 * HOUR),
        )
        signers = tuple(
            f'{name} namespaces="{NAMESPACE}" {public_text(self.keys[key])}'
            for name, key in (("alice", "alice"), ("bob", "requester"))
        )
        revoked = {self.keys["revoked"].public: at - 2 * HOUR}
        self.record: BusRecord = bus_record(RealClock())
        self.content = RootContent(self.record, runners, signers, revoked)
        self.first_files = write_root(self.content, self.keys["former_owner"], NOW)
        first = read_root(self.first_files)
        self.files = write_root(self.content, self.keys["former_owner"], NOW, first, self.keys["owner"])
        self.root: TrustRoot = read_root(self.files, first)
        self.request: Request = make_request(BUS_ID, "mlx-env-probe", principal="alice",
                                             signer=fingerprint(self.keys["alice"].public))  # fmt: skip

    def authority(self, reader: str) -> KeyAuthority:
        if reader == "no_root":
            return NOBODY
        return self.root.authority(vouched=reader != "first_use")

    def memory(self, reader: str) -> RootMemory:
        """Return what a reader remembers: the present root, or nothing."""
        memory = RootMemory(self.folder / f"memory-{reader}")
        if reader != "no_root" and memory.recall(BUS_ID) is None:
            pin = None if reader == "first_use" else self.root.owner
            memory.meet(self.files, BUS_ID, pin=pin, now_s=NOW.timestamp())
        return memory

    def ssh(self, actor: str, data: bytes) -> bytes:
        return sign(data, self.folder / actor)

    def claim(self, **changes: object) -> Claim:
        fields: dict[str, object] = {
            "id": self.request.id, "request_oid": "e" * 40, "state": "claimed", "runner": "hosta", "nonce": "2" * 32,
            "sequence": 0, "lease_s": 60.0, "time": NOW.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        }  # fmt: skip
        return Claim.model_validate({**fields, **changes})

    def statement(self, kind: SealedKind, *, ref: str = REF, **changes: object) -> Statement:
        parents = ("a" * 40,) if kind in {"log", "archive"} else ()
        claim = self.claim(**changes)
        return Statement(kind, BUS_ID, ref, "hosta", parents, claim.canonical(), latest_time_of(claim))

    def sealer(self, actor: str) -> KeySeals:
        return KeySeals(lambda: NOBODY, name="hosta", key=self.keys[actor])

    def result(self, actor: str = "hosta", request: Request | None = None) -> dict[str, bytes]:
        """Return a whole result of hosta, its attestation made with an actor's key."""
        sent = request or self.request
        data, log = sent.canonical(), b"hello\n"
        claim = self.claim(id=sent.id)
        seal = self.sealer("hosta").sign(Statement("claim", BUS_ID, REF, "hosta", (), claim.canonical()))
        head, _ = claim_commit(claim, (), seal)
        digest = hashlib.sha256(data).hexdigest()
        times = dict.fromkeys(("created", "claimed", "started", "ended"), claim.time)
        record = RECORD.evolve(
            id=sent.id, bus_id=BUS_ID, request_digest=digest, request_oid="e" * 40, claims=(head.oid,),
            runner="hosta", log_bytes=len(log), log_sha256=hashlib.sha256(log).hexdigest(), commands=(),
            program_exit=None, **times,
        )  # fmt: skip
        verdict = VERDICT.evolve(id=sent.id, reports=())
        spec = SPEC.evolve(id=sent.id, request_digest=digest)
        files = dict(build_tree(
            request_bytes=data, signature=None, claims=((head.data, claim.canonical()),), log=log, record=record,
            spec=spec, reports={}, verdict=verdict, derived=DERIVED.evolve(id=sent.id), bus_id=BUS_ID,
            request_oid="e" * 40, attestation="dsse",
        ))  # fmt: skip
        envelope = attest(
            files, ref=sent.ref, record=record, verdict=verdict, link=ChainPosition("c" * 64, 1),
            signer=MetadataSigner(self.keys[actor]),
        )  # fmt: skip
        return {**files, ATTESTATION_FILE: envelope}
