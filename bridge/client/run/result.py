"""Read a result tree: whose it is, what it says, how its run ended.

A tree that is not this request's is refused here, before a line of it is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pydantic

from bridge import strictjson
from bridge.client.clone.store import read_tree
from bridge.errors import IntegrityError
from bridge.limits import MIB, REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.run.outcomes import ended_as

if TYPE_CHECKING:
    from bridge.bus.tree import Tree
    from bridge.records.base import Record
    from bridge.records.claim import Claim
    from bridge.records.derived import Derived
    from bridge.records.jobspec import JobSpec
    from bridge.records.manifest import Manifest
    from bridge.records.request import Request
    from bridge.records.run import RunRecord
    from bridge.records.verdict import StoredVerdict, Verdict
    from bridge.run.requirement import Requirement
    from bridge.trust.judgement import TrustAnswer

_RECORD_MAX_BYTES = 32 * MIB
_R = TypeVar("_R", bound="Record")


@dataclass(frozen=True)
class Result:
    """A result tree, read.

    Attributes:
        record, spec: None where the run ended before there was one.
        stored: what `verdict.json` says, whichever gate wrote it; None where nothing was judged.
        reports: parsed reports by path; one that is no JSON object is left out, the gate has said so.
    """

    id: str
    tree: Tree
    manifest: Manifest
    request: Request | None
    record: RunRecord | None
    stored: StoredVerdict | None
    spec: JobSpec | None
    reports: Mapping[str, Mapping[str, Any]]

    @cached_property
    def verdict(self) -> Verdict | None:
        """What the host said as it ended; that of the gate here where `verdict.json` is of another schema."""
        from bridge.records.verdict import Verdict

        if self.stored is None:
            return None
        try:
            return Verdict.parse(self.tree.files["verdict.json"], max_bytes=_RECORD_MAX_BYTES)
        except pydantic.ValidationError:
            return self._judged_unsigned

    def verdict_for(self, answer: TrustAnswer | None) -> Verdict | None:
        """Return the verdict that a reader goes by: the host's where a known key signed it, else that of the gate here.

        Whoever may push may write a verdict; what the gate here says of the reports needs nobody's word.
        """
        return self.verdict if answer is not None and answer.signed else self._judged_unsigned

    @cached_property
    def _judged_unsigned(self) -> Verdict | None:
        return None if self.stored is None else self.judged(signed=False)

    @property
    def pools(self) -> bool:
        """Whether it was judged with what earlier attempts had left, which is not in this tree."""
        if self.spec is not None and self.spec.sitting is not None:
            return False  # a sitting stands by itself
        attempt = None if self.record is None else self.record.attempt
        return attempt is not None and attempt.number - 1 > len(attempt.unseen)

    def takes_verdict(self, *, signed: bool) -> bool:
        """Whether the verdict here is the host's own: with earlier attempts that it had, and by this very gate."""
        from bridge.gate.identity import identity

        return self.pools and signed and self.stored is not None and self.stored.gate.digest == identity().digest

    def judged(self, *, signed: bool) -> Verdict:
        """Return the verdict of the gate that is installed here.

        Args:
            signed: whether a key of this reader's says that the runner wrote these files; nobody else saw the run.
        """
        from bridge.gate.judging import judge_bytes
        from bridge.records.verdict import Verdict

        if self.takes_verdict(signed=signed):
            return Verdict.parse(self.tree.files["verdict.json"], max_bytes=_RECORD_MAX_BYTES)
        files = self.tree.files
        authority: Literal["attested", "unattested"] = "attested" if signed else "unattested"
        return judge_bytes(
            self.id, self._judged_files, files.get("run.json"), files.get("spec.json"), authority=authority
        )

    @cached_property
    def derived(self) -> Derived:
        """What the gate that is installed here derives from the reports; what a result says of that is not read."""
        from bridge.gate.derivation import derive

        return derive(self.id, self._judged_files, self.record, self.spec)

    @property
    def _judged_files(self) -> dict[str, bytes]:
        files = self.tree.files
        return {name.removeprefix("reports/"): data for name, data in files.items() if name.startswith("reports/")}

    @property
    def kept(self) -> dict[str, bytes]:
        """The files that the program left beside its reports, by path below the reports' folder: untrusted."""
        declared = () if self.spec is None else self.spec.outputs
        names = (output.path for output in declared if output.kind == "attachment")
        return {name: self.tree.files[f"reports/{name}"] for name in names if f"reports/{name}" in self.tree.files}

    @property
    def log(self) -> bytes:
        """The log, written by the program of the run: untrusted."""
        return self.tree.files.get("log.txt", b"")


def read_result(tree: Tree, run_id: str | None = None) -> Result:
    """Return what a result tree says.

    Args:
        tree: its files.
        run_id: the run it must be about, or None to take its word for it.

    Raises:
        IntegrityError: not a result tree, or another run's.
    """
    from bridge.records.jobspec import JobSpec
    from bridge.records.manifest import Manifest
    from bridge.records.run import RunRecord
    from bridge.records.verdict import StoredVerdict

    manifest = _read(tree, "manifest.json", Manifest)
    if manifest is None:
        raise IntegrityError("there is no manifest.json; expected a result tree")
    expected_id = run_id or manifest.id
    record, stored, spec = (
        _read(tree, "run.json", RunRecord),
        _read(tree, "verdict.json", StoredVerdict),
        _read(tree, "spec.json", JobSpec),
    )
    for name, named_id in (
        ("manifest.json", manifest),
        ("run.json", record),
        ("verdict.json", stored),
        ("spec.json", spec),
    ):
        if named_id is not None and named_id.id != expected_id:
            raise IntegrityError(
                f"{name} is about run {named_id.id}, not about {expected_id}: it is not this run's result"
            )
    return Result(expected_id, tree, manifest, _request(tree, expected_id), record, stored, spec, _reports(tree, spec))


def read_folder_result(folder: Path) -> Result:
    """Return what the result tree in a folder says.

    Raises:
        IntegrityError: it holds no result tree.
    """
    if folder.is_dir() and not (folder / "manifest.json").exists():
        raise IntegrityError(
            f"{folder} holds no manifest.json; expected the folder of a result", remedy="kakeya-mac ls"
        )
    return read_result(read_tree(folder))


def ending(
    claim: Claim | None, result: Result | None, verdict: Verdict | None, required: Requirement | None = None
) -> str:  # fmt: skip
    """Return the reason a run ended in: the claim's, the authority; else what the result says.

    Args:
        claim: None where none was seen.
        result: None where there is none here.
        verdict: what the reader goes by of that result; one that rejects it does so whatever its host said.
        required: what is asked of the verdict, None for anything but a rejection.
    """
    if result is None:
        return "infrastructure" if claim is None or claim.reason is None else claim.reason
    reason = result.record.reason if result.record is not None else "passed"
    if claim is not None and claim.reason is not None:
        reason = claim.reason
    return ended_as(reason, verdict, required)


def backend_of(result: Result) -> tuple[str, str] | None:
    """Return (backend, device) as the run's reports name them, None without a report."""
    for report in result.reports.values():
        environment = report.get("environment")
        if isinstance(environment, dict):
            return str(environment.get("backend", "unknown")), str(environment.get("device", "unknown"))
    return None


def request_digest(data: bytes) -> str:
    """Return the digest by which results name a request."""
    return hashlib.sha256(data).hexdigest()


def _read(tree: Tree, name: str, kind: type[_R]) -> _R | None:
    data = tree.files.get(name)
    if data is None:
        return None
    try:
        return kind.parse(data, max_bytes=_RECORD_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
    except strictjson.StrictJsonError as error:
        raise IntegrityError(f"{name}: {error}") from error
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise IntegrityError(f"{name}: {where}: {first['msg']}", remedy="a newer kakeya may read it") from error


def _request(tree: Tree, expected_id: str) -> Request | None:
    """Return the request in the tree; a malformed one was rejected by the host, so it is None and no error."""
    from bridge.records.request import Request

    data = tree.files.get("request.json")
    try:
        request = None if data is None else Request.parse(data)
    except (strictjson.StrictJsonError, pydantic.ValidationError):
        return None
    if request is not None and request.id != expected_id:
        raise IntegrityError(
            f"request.json is about run {request.id}, not about {expected_id}: it is not this run's result"
        )
    return request


def _reports(tree: Tree, spec: JobSpec | None) -> dict[str, Mapping[str, Any]]:
    from bridge.records.jobspec import ATTACHMENTS

    beside = {f"reports/{output.path}" for output in spec.outputs if output.kind in ATTACHMENTS} if spec else set()
    reports: dict[str, Mapping[str, Any]] = {}
    for name, data in tree.files.items():
        if name.startswith("reports/") and name.endswith(".json") and name not in beside:
            try:
                value = strictjson.decode(data, max_bytes=REPORT_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
            except strictjson.StrictJsonError:
                continue
            if isinstance(value, dict):
                reports[name.removeprefix("reports/")] = value
    return reports
