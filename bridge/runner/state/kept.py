"""Keep what a run came to until its result is built: a runner killed in between judges and publishes it afterwards.

Holds everything that cannot be asked again: reports, log and marks, and which code, models and machine it was. Secrets
are masked. Knows files only.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import zlib
from collections.abc import Container
from pathlib import Path
from typing import Literal

import pydantic
from pydantic import ConfigDict

from bridge.executor.interface import Execution
from bridge.records import Attempt, CodeRecord, HostRecord, JobSpec, ModelDigest, Record
from bridge.records.base import Moment, Oid, RunId, Text
from bridge.system.durable import write_atomically

_SUFFIX = ".json.gz"


class KeptRun(Record):
    """A run whose last process is dead and whose result is not built yet.

    Attributes:
        spec: the job spec, its secret values masked.
        code, host, models, runner_version: as they were when it ran; an upgrade may lie between crash and recovery.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    schema_version: Literal[1] = 1
    id: RunId
    request_oid: Oid
    request_bytes: bytes
    signature: bytes | None
    spec: JobSpec
    execution: Execution
    code: CodeRecord | None
    host: HostRecord
    models: tuple[ModelDigest, ...]
    attempt: Attempt | None
    runner_version: Text
    started: Moment
    ended: Moment


def save(folder: Path, kept: KeptRun) -> str:
    """Write a run durably and return the digest its journal line carries.

    Raises:
        OSError: the disk did not take it.
    """
    data = gzip.compress(kept.model_dump_json().encode(), 1, mtime=0)
    write_atomically(folder / f"{kept.id}{_SUFFIX}", data)
    return hashlib.sha256(data).hexdigest()


def load(folder: Path, run_id: str, digest: str | None) -> KeptRun | None:
    """Return what was kept of a run, or None when nothing whole was.

    Args:
        folder: where runs are kept.
        run_id: the run.
        digest: what the journal says of the file; None when the runner died before it could say.
    """
    try:
        data = (folder / f"{run_id}{_SUFFIX}").read_bytes()
        if digest is not None and hashlib.sha256(data).hexdigest() != digest:
            return None
        kept = KeptRun.model_validate_json(gzip.decompress(data))
    except (OSError, EOFError, zlib.error, pydantic.ValidationError):
        return None
    return kept if kept.id == run_id else None


def drop(folder: Path, run_id: str) -> None:
    """Forget a run whose result is built."""
    with contextlib.suppress(FileNotFoundError):
        (folder / f"{run_id}{_SUFFIX}").unlink()


def drop_all_but(folder: Path, run_ids: Container[str]) -> None:
    """Forget runs that reached their end, which a crash kept from being forgotten."""
    for path in folder.glob(f"*{_SUFFIX}"):
        if path.name.removesuffix(_SUFFIX) not in run_ids:
            path.unlink(missing_ok=True)
