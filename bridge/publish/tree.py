"""Build the self-contained result tree: request, record, verdict, and a manifest of all files.

Knows no bus and no disk: values in, files out. The same values give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

from bridge.errors import PublishError
from bridge.limits import RESULT_MAX_BYTES, RESULT_MAX_FILES
from bridge.publish.markdown import summary
from bridge.records.derived import Derived
from bridge.records.jobspec import JobSpec
from bridge.records.manifest import Manifest, ManifestEntry
from bridge.records.request import Request
from bridge.records.run import RunRecord
from bridge.records.verdict import Verdict
from bridge.trust.claim_chain import write_chain

MASK = "***"
_OWN_FILES = 2  # the manifest and the attestation


def build_tree(
    *,
    request_bytes: bytes | None,
    signature: bytes | None,
    claims: Sequence[tuple[bytes, bytes]],
    log: bytes,
    record: RunRecord,
    spec: JobSpec | None,
    reports: Mapping[str, bytes],
    verdict: Verdict,
    derived: Derived,
    bus_id: str,
    request_oid: str,
    attestation: Literal["none", "dsse"] = "none",
) -> dict[str, bytes]:
    """Return the files of a result tree by relative POSIX path, `manifest.json` included.

    Args:
        request_bytes: the stored request, or None when it could not even be read.
        signature: its signature, or None.
        claims: (raw commit object, claim JSON) of the claim chain up to the last non-terminal claim.
        log: the whole log kept.
        record: what happened.
        spec: what was to run, or None when the request never became one; secret values are masked here.
        reports: declared reports by path below the report directory.
        verdict: the gate's verdict.
        derived: what the gate derives from the reports.
        bus_id: the bus the run is bound to.
        request_oid: the request commit the run is bound to.
        attestation: whether an attestation over these files is to be added; the manifest says so.

    Raises:
        PublishError: the tree breaks its bounds.
    """
    request = None if spec is None or request_bytes is None else Request.parse(request_bytes)
    files: dict[str, bytes] = {
        "log.txt": log,
        "claims.jsonl": write_chain(claims),
        "run.json": record.canonical(),
        "verdict.json": verdict.canonical(),
        "derived.json": derived.canonical(),
        "summary.md": summary(record, verdict, request).encode("utf-8"),
    }
    if request_bytes is not None:
        files["request.json"] = request_bytes
    if signature is not None:
        files["request.json.sig"] = signature
    if spec is not None:
        files["spec.json"] = mask(spec).canonical()
    files |= {f"reports/{path}": data for path, data in reports.items()}
    return _sealed(files, record.id, bus_id, request_oid, attestation)


def _sealed(
    files: dict[str, bytes], run_id: str, bus_id: str, request_oid: str, attestation: Literal["none", "dsse"]
) -> dict[str, bytes]:
    """Return the files with the manifest that lists them."""
    total = sum(map(len, files.values()))
    if total > RESULT_MAX_BYTES or len(files) + _OWN_FILES > RESULT_MAX_FILES:
        raise PublishError(
            f"the result holds {len(files)} files and {total} bytes; at most {RESULT_MAX_FILES} and {RESULT_MAX_BYTES}"
        )
    entries = tuple(
        ManifestEntry(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in sorted(files.items())
    )
    manifest = Manifest(id=run_id, bus_id=bus_id, request_oid=request_oid, attestation=attestation, files=entries)
    return {**files, "manifest.json": manifest.canonical()}


def mask(spec: JobSpec) -> JobSpec:
    """Return the job spec without the values of its secret variables."""
    shown = tuple(v.evolve(value=MASK) if v.secret else v for v in spec.environment)
    return spec.evolve(environment=shown)
