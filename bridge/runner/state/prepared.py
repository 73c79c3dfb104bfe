"""What is known of a run before it starts, in its own folder: a later process of this runner judges and publishes it.

Holds what cannot be asked again: the request, which code and models it was, and the count of its attempt. It holds the
spec with its secrets, as the job file beside it does, and goes with it when the result is built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import pydantic
from pydantic import ConfigDict

from bridge.records.base import Moment, Oid, Record, RunId, Text
from bridge.records.jobspec import JobSpec
from bridge.records.run import Attempt, CodeRecord, ModelDigest
from bridge.strictjson import StrictJsonError
from bridge.system.durable import write_atomically

FILE: Final = "run.json"
_MAX_BYTES: Final = 1 << 26
_DEPTH_MAX: Final = 32


class PreparedRun(Record):
    """A run that is about to start, or that was started and whose result is not built yet.

    Attributes:
        spec: the job spec, its secret values included.
        code, models, runner_version: as they were when it started; an upgrade may lie between start and result.
        started: when it was let go, on the wall clock.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    schema_version: Literal[1] = 1
    id: RunId
    request_oid: Oid
    request_bytes: bytes
    signature: bytes | None
    spec: JobSpec
    code: CodeRecord | None
    models: tuple[ModelDigest, ...]
    attempt: Attempt | None
    runner_version: Text
    started: Moment


def save(handle: Path, run: PreparedRun) -> None:
    """Write it durably into the run's folder.

    Raises:
        OSError: the disk did not take it.
    """
    write_atomically(handle / FILE, run.model_dump_json().encode())


def load(handle: Path, run_id: str, oid: str) -> PreparedRun | None:
    """Return what is known of a run, or None when nothing whole is.

    Args:
        handle: the run's folder.
        run_id: the run.
        oid: the request commit as it was claimed; another commit under the same id is another request.
    """
    run = read(handle)
    return run if run is not None and (run.id, run.request_oid) == (run_id, oid) else None


def read(handle: Path) -> PreparedRun | None:
    """Return what a run's folder holds, whichever run it is; None when nothing whole is there."""
    try:
        return PreparedRun.parse((handle / FILE).read_bytes(), max_bytes=_MAX_BYTES, max_depth=_DEPTH_MAX)
    except (OSError, StrictJsonError, pydantic.ValidationError):
        return None
