"""Verify a result tree: the manifest lists every byte, the records in it agree, and who may say so signed it.

Needs only the files and what the reader knows about keys.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import pydantic

from bridge import ids, strictjson
from bridge.errors import IntegrityError
from bridge.limits import RESULT_MAX_BYTES, RESULT_MAX_FILES
from bridge.strictjson import StrictJsonError
from bridge.system.clock import parse_rfc3339
from bridge.trust.attestation import ATTESTATION_FILE, Attested, verify_attestation
from bridge.trust.claim_chain import read_chain
from bridge.trust.judgement import NOBODY, KeyAuthority, Signed, TrustAnswer, may_say
from bridge.trust.seals import seal_in
from bridge.trust.signing_key import key_id

if TYPE_CHECKING:
    from bridge.records.base import Record
    from bridge.records.jobspec import JobSpec
    from bridge.records.manifest import Manifest
    from bridge.records.run import RunRecord

_PATH = re.compile(
    r"(log\.txt|run\.json|verdict\.json|derived\.json|summary\.md|request\.json|request\.json\.sig|spec\.json"
    r"|claims\.jsonl"
    r"|reports/(?!\.)[^/\0\\]+(/(?!\.)[^/\0\\]+)*)"
)
_REQUIRED = ("log.txt", "run.json", "verdict.json", "summary.md", "claims.jsonl")
R = TypeVar("R", bound="Record")
PIN_REMEDY = "ask its owner for the line `there:` that `kakeya-runner doctor` prints, and type it here"
_KEY_ID_CHARS = 12


@dataclass(frozen=True)
class TreeProblem:
    """A broken promise of a result tree: the file concerned, what was got and what is expected."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def verify_tree(files: Mapping[str, bytes], *, run_id: str | None = None) -> list[TreeProblem]:
    """Return the problems of a result tree, an empty list where there are none.

    Args:
        files: by relative POSIX path, `manifest.json` included.
        run_id: the run it is said to be the result of, or None to take the id in its manifest.
    """
    from bridge.records.jobspec import JobSpec
    from bridge.records.manifest import Manifest
    from bridge.records.run import RunRecord
    from bridge.records.verdict import StoredVerdict

    if "manifest.json" not in files:
        return [TreeProblem("manifest.json", "missing; this is not a result tree")]
    problems: list[TreeProblem] = []
    manifest = _read(Manifest, "manifest.json", files, problems)
    if manifest is None:
        return problems
    problems += _files(manifest, files)
    record = _read(RunRecord, "run.json", files, problems)
    verdict = _read(StoredVerdict, "verdict.json", files, problems)
    spec = _read(JobSpec, "spec.json", files, problems) if "spec.json" in files else None
    for path, other in (("run.json", record), ("verdict.json", verdict), ("spec.json", spec)):
        if other is not None and other.id != manifest.id:
            problems.append(TreeProblem(path, f"is about run {other.id}, the manifest about {manifest.id}"))
    if run_id is not None and manifest.id != run_id:
        problems.append(TreeProblem("manifest.json", f"is about run {manifest.id}, expected {run_id}"))
    if record is not None:
        problems += _record(manifest, record, files)
        problems += _request(manifest, record, spec, files)
        problems += _claims(manifest, record, files)
    return problems


@dataclass(frozen=True)
class ResultAnswer:
    """Whether a runner may say what a result says, and its attestation where it carries a readable one."""

    answer: TrustAnswer
    attested: Attested | None = None


def judge_result(
    files: Mapping[str, bytes],
    authority: KeyAuthority,
    *,
    runner: str | None = None,
    signs: bool = False,
    archived_at: float | None = None,
) -> ResultAnswer:
    """Return whether the runner that a result names may say it, and what signed it.

    Args:
        files: the result tree.
        authority: what this reader knows about keys.
        runner: the runner whose claim names this result, None where no claim was seen.
        signs: whether the bus says that its results are signed.
        archived_at: when another runner archived the claim that names this result, None where none did.
    """
    if ATTESTATION_FILE not in files:
        record = _record_in(files)
        named = runner or ("" if record is None else record.runner)
        removed = _said_signed(files) or ("this bus says that its results are signed" if signs else None)
        return ResultAnswer(may_say(authority, Signed("result", named, present=False, removed=removed)))
    keys = dict.fromkeys(key.key for key in authority.of("runner"))
    try:
        attested = verify_attestation(files, keys)
    except IntegrityError as error:
        return ResultAnswer(TrustAnswer("altered", error.message))
    record = _record_in(files)
    times = [ids.unix_ms(attested.run) / 1000] if ids.is_id(attested.run) else []
    times += [] if record is None else [parse_rfc3339(record.ended).timestamp()]
    bus_id = str(attested.predicate["bus_id"])
    signed = Signed(
        "result", attested.runner, present=True, key=attested.key, at=max(times, default=None), bus_id=bus_id,
        expected=runner, archived_at=archived_at,
    )  # fmt: skip
    if not authority.closed and not {key_id(key) for key in keys} & set(_key_ids(files)):
        authority = NOBODY  # each machine calls its own runner `embedded`: this is another's of that name
    answer = may_say(authority, signed)
    if answer.signed:
        answer = replace(answer, why=f"{answer.why}, its number {attested.link.sequence}")
    elif answer.key_unknown:
        named_keys = " and ".join(keyid[:_KEY_ID_CHARS] for keyid in _key_ids(files)) or "unnamed"
        whose = f"signed by {attested.runner}, key id {named_keys}, which you have not pinned"
        answer = replace(answer, why=f"{whose}: {PIN_REMEDY}")
    return ResultAnswer(answer, attested)


def _key_ids(files: Mapping[str, bytes]) -> list[str]:
    """Return the ids of the keys that an attestation names; nothing has checked them."""
    try:
        envelope = strictjson.decode(files[ATTESTATION_FILE], max_bytes=RESULT_MAX_BYTES)
        return [str(signature["keyid"]) for signature in envelope["signatures"]]
    except (ValueError, KeyError, TypeError):
        return []


def _said_signed(files: Mapping[str, bytes]) -> str | None:
    """Return what in a result without a signature says that there was one, None where nothing does."""
    from bridge.records.manifest import Manifest

    try:
        manifest = Manifest.parse(files["manifest.json"], max_bytes=RESULT_MAX_BYTES)
        messages = [link.message for link in read_chain(files.get("claims.jsonl", b""), hex_chars=40)]
    except (KeyError, ValueError):  # StrictJsonError and ValidationError are ValueErrors: a finding of its own
        return None
    if manifest.attestation == "dsse":
        return "its manifest says that it is signed"
    signer = next((seal.runner for seal in map(seal_in, messages) if seal is not None), None)
    return None if signer is None else f"{signer} signed its claims"


def _record_in(files: Mapping[str, bytes]) -> RunRecord | None:
    from bridge.records.run import RunRecord

    try:
        return RunRecord.parse(files["run.json"], max_bytes=RESULT_MAX_BYTES, max_depth=32)
    except (KeyError, ValueError):
        return None


def _read(kind: type[R], path: str, files: Mapping[str, bytes], problems: list[TreeProblem]) -> R | None:
    if path not in files:
        return None  # reported with the other missing files
    try:
        value = kind.parse(files[path], max_bytes=RESULT_MAX_BYTES, max_depth=32)
    except (StrictJsonError, pydantic.ValidationError) as error:
        problems.append(TreeProblem(path, f"is no {kind.__name__}: {str(error).splitlines()[0]}"))
        return None
    # Only what the bytes say: a field that a newer version added is absent from an older result.
    if strictjson.encode(strictjson.decode(files[path], max_bytes=RESULT_MAX_BYTES, max_depth=32)) != files[path]:
        problems.append(TreeProblem(path, "is not in canonical form"))
    return value


def _files(manifest: Manifest, files: Mapping[str, bytes]) -> Iterator[TreeProblem]:
    listed = [entry.path for entry in manifest.files]
    if listed != sorted(set(listed)):
        yield TreeProblem("manifest.json", "does not list each file once, sorted by path")
    if len(files) > RESULT_MAX_FILES or sum(map(len, files.values())) > RESULT_MAX_BYTES:
        yield TreeProblem(
            "manifest.json", f"the tree breaks its bounds: {RESULT_MAX_FILES} files, {RESULT_MAX_BYTES} bytes"
        )
    unlisted = {"manifest.json"} | ({ATTESTATION_FILE} if manifest.attestation == "dsse" else set())
    for path in sorted(set(files) - set(listed) - unlisted):
        yield TreeProblem(path, "is not listed in the manifest")
    if manifest.attestation == "dsse" and ATTESTATION_FILE not in files:
        yield TreeProblem(ATTESTATION_FILE, "missing; the manifest says that this result is signed")
    for path in _REQUIRED:
        if path not in listed:
            yield TreeProblem(path, "missing")
    for entry in manifest.files:
        if _PATH.fullmatch(entry.path) is None:
            yield TreeProblem(entry.path, "has no place in a result tree")
        data = files.get(entry.path)
        if data is None:
            yield TreeProblem(entry.path, "is listed and missing")
        elif len(data) != entry.bytes or hashlib.sha256(data).hexdigest() != entry.sha256:
            yield TreeProblem(
                entry.path, f"differs from the manifest: {len(data)} bytes, listed {entry.bytes}, or its digest"
            )


def _record(manifest: Manifest, record: RunRecord, files: Mapping[str, bytes]) -> Iterator[TreeProblem]:
    if record.bus_id != manifest.bus_id or record.request_oid != manifest.request_oid:
        yield TreeProblem("run.json", "names another bus or another request commit than the manifest")
    log = files.get("log.txt", b"")
    if record.log_bytes != len(log) or record.log_sha256 != hashlib.sha256(log).hexdigest():
        yield TreeProblem("log.txt", "is not the log that run.json describes")
    outputs = {output.path: output.sha256 for output in record.outputs}
    for path, data in files.items():
        if path.startswith("reports/"):
            expected = outputs.get(path.removeprefix("reports/"))
            if expected != hashlib.sha256(data).hexdigest():
                yield TreeProblem(path, "is not among the outputs that run.json records")


def _request(
    manifest: Manifest, record: RunRecord, spec: JobSpec | None, files: Mapping[str, bytes]
) -> Iterator[TreeProblem]:
    from bridge.records.request import Request

    data = files.get("request.json")
    digest = hashlib.sha256(data or b"").hexdigest()
    if record.request_digest != digest:
        yield TreeProblem("request.json", f"has digest {digest}, run.json names {record.request_digest}")
    if spec is None:
        if record.commands or record.program_exit is not None:
            yield TreeProblem("spec.json", "missing although run.json says that something ran")
        return
    if spec.request_digest != digest or spec.preset != record.preset or spec.policy_digest != record.policy_digest:
        yield TreeProblem("spec.json", "is for another request, preset or policy than run.json")
    problems: list[TreeProblem] = []
    request = _read(Request, "request.json", files, problems)
    yield from problems
    if request is not None and (request.id, request.bus_id) != (manifest.id, manifest.bus_id):
        yield TreeProblem("request.json", "is another run's or another bus's request")


def _claims(manifest: Manifest, record: RunRecord, files: Mapping[str, bytes]) -> Iterator[TreeProblem]:
    from bridge.records.claim import Claim

    path = "claims.jsonl"
    try:
        links = read_chain(files.get(path, b""), hex_chars=len(manifest.request_oid))
        claims = [Claim.parse(link.claim) for link in links]
    except ValueError as error:  # StrictJsonError and ValidationError are ValueErrors
        yield TreeProblem(path, f"is no claim chain: {str(error).splitlines()[0]}")
        return
    previous: str | None = None
    for number, (link, claim) in enumerate(zip(links, claims, strict=True)):
        if not link.holds or link.parent != previous:
            yield TreeProblem(path, f"commit {number} does not hold its claim, or does not follow the commit before it")
        if (claim.id, claim.request_oid) != (manifest.id, manifest.request_oid):
            yield TreeProblem(path, f"commit {number} is a claim of another run or request")
        if claim.state == "terminal":
            yield TreeProblem(path, f"commit {number} is terminal; a result tree holds the claims before it")
        previous = link.oid
    chain = tuple(link.oid for link in links)
    if not record.claims or record.claims != chain[: len(record.claims)]:
        yield TreeProblem("run.json", "names a claim chain that is not the one in the tree")
