"""Read a result tree: whose it is, what it says, how its run ended.

A tree that is not this request's is refused here, before anybody sees a line of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic

from bridge import strictjson
from bridge.bus.views import Tree
from bridge.errors import IntegrityError
from bridge.limits import MIB, REPORT_JSON_MAX_DEPTH, REPORT_MAX_BYTES
from bridge.records import Claim, JobSpec, Manifest, Record, Request, RunRecord, Verdict
from bridge.run.outcomes import Required, exit_code_of

_RECORD_MAX_BYTES = 32 * MIB
_R = TypeVar("_R", bound=Record)


@dataclass(frozen=True)
class Result:
    """A result tree, read.

    Attributes:
        record, verdict, spec: None where the run ended before there was one.
        reports: parsed reports by path; one that is no JSON object is left out, the gate has said so.
    """

    id: str
    tree: Tree
    manifest: Manifest
    request: Request | None
    record: RunRecord | None
    verdict: Verdict | None
    spec: JobSpec | None
    reports: Mapping[str, Mapping[str, Any]]

    @property
    def log(self) -> bytes:
        """The log, untrusted."""
        return self.tree.files.get("log.txt", b"")


def read_result(tree: Tree, run_id: str | None = None) -> Result:
    """Return what a result tree says.

    Args:
        tree: its files.
        run_id: the run it must be about, or None to take its word for it.

    Raises:
        IntegrityError: not a result tree, or another run's.
    """
    manifest = _read(tree, "manifest.json", Manifest)
    if manifest is None:
        raise IntegrityError("there is no manifest.json; expected a result tree")
    wanted = run_id or manifest.id
    record, verdict, spec = (
        _read(tree, "run.json", RunRecord),
        _read(tree, "verdict.json", Verdict),
        _read(tree, "spec.json", JobSpec),
    )
    for name, found in (
        ("manifest.json", manifest),
        ("run.json", record),
        ("verdict.json", verdict),
        ("spec.json", spec),
    ):
        if found is not None and found.id != wanted:
            raise IntegrityError(f"{name} is about run {found.id}, not about {wanted}: it is not this run's result")
    return Result(wanted, tree, manifest, _request(tree, wanted), record, verdict, spec, _reports(tree))


def ending(claim: Claim | None, result: Result | None) -> str:
    """Return the reason a run ended in: the claim's, the authority; else what the result says."""
    if claim is not None and claim.reason is not None:
        return claim.reason
    if result is None:
        return "infrastructure"
    if result.record is not None and result.record.reason != "passed":
        return result.record.reason
    return "gate_rejected" if result.verdict is None or result.verdict.decision == "rejected" else "passed"


def exit_code(reason: str, result: Result | None, required: Required) -> int:
    """Return the exit code of a run that ended."""
    decision = result.verdict.decision if result is not None and result.verdict is not None else None
    return exit_code_of(reason, decision, required)


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


def _request(tree: Tree, wanted: str) -> Request | None:
    """Return the request in the tree; a malformed one was rejected by the host, so it is None and no error."""
    data = tree.files.get("request.json")
    try:
        request = None if data is None else Request.parse(data)
    except (strictjson.StrictJsonError, pydantic.ValidationError):
        return None
    if request is not None and request.id != wanted:
        raise IntegrityError(f"request.json is about run {request.id}, not about {wanted}: it is not this run's result")
    return request


def _reports(tree: Tree) -> dict[str, Mapping[str, Any]]:
    reports: dict[str, Mapping[str, Any]] = {}
    for name, data in tree.files.items():
        if name.startswith("reports/") and name.endswith(".json"):
            try:
                value = strictjson.decode(data, max_bytes=REPORT_MAX_BYTES, max_depth=REPORT_JSON_MAX_DEPTH)
            except strictjson.StrictJsonError:
                continue
            if isinstance(value, dict):
                reports[name.removeprefix("reports/")] = value
    return reports
