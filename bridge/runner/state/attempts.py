"""Count how often this host has run the same thing, and keep its reports: the best of ten reruns is no evidence.

From the second attempt on only the estimate over all of them may be quoted. Knows digests, ids and files.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from bridge import strictjson
from bridge.errors import JournalError
from bridge.records import Attempt, JobSpec
from bridge.records.base import Record, RunId, Sha256
from bridge.runner.state.journal import append_line
from bridge.system.durable import write_atomically

_PREFIX = "reports/"
_LOADED_MAX_COUNT = 64  # more attempts than that of one configuration are not pooled, and the gate says so


class _Line(Record):
    key: Sha256
    id: RunId


def attempt_key(spec: JobSpec, code_identity: str, host: str) -> str:
    """Return sha256 over (preset, params, profile, code, host)."""
    value = [spec.preset, spec.params, spec.profile, code_identity, host]
    return hashlib.sha256(strictjson.encode(value)).hexdigest()


class Attempts:
    """A durable counter; an id counts once however often it is asked."""

    def __init__(self, path: Path) -> None:
        """Read what was counted; a torn last line is ignored.

        Raises:
            JournalError: a line is not this file's.
        """
        self._path = path
        self._lock = threading.Lock()
        self._ids: dict[str, list[str]] = {}
        if not path.exists():
            return
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(path, whole)
        for number, raw in enumerate(data[:whole].splitlines()):
            try:
                line = _Line.parse(raw)
            except ValueError as error:
                raise JournalError(f"{path}, line {number + 1}: {str(error).splitlines()[0]}") from error
            self._ids.setdefault(line.key, []).append(line.id)

    def count(self, key: str, run_id: str) -> Attempt:
        """Count a run durably and return which attempt it is.

        Raises:
            JournalError: it could not be written.
        """
        with self._lock:
            ids = self._ids.setdefault(key, [])
            if run_id not in ids:
                append_line(self._path, _Line(key=key, id=run_id).canonical())
                ids.append(run_id)
            number = ids.index(run_id) + 1
            return Attempt(key=key, number=number, earlier=tuple(ids[: number - 1]))


def save_reports(folder: Path, run_id: str, files: Mapping[str, bytes]) -> None:
    """Store the reports of a result tree."""
    reports = {path.removeprefix(_PREFIX): data.hex() for path, data in files.items() if path.startswith(_PREFIX)}
    if reports:
        write_atomically(folder / f"{run_id}.json.gz", gzip.compress(json.dumps(reports).encode(), 1, mtime=0))


def load_reports(folder: Path, run_ids: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """Return the reports of the latest of these runs by run id; a run that left none is absent."""
    found: dict[str, dict[str, bytes]] = {}
    for run_id in run_ids[-_LOADED_MAX_COUNT:]:
        try:
            value = json.loads(gzip.decompress((folder / f"{run_id}.json.gz").read_bytes()))
        except FileNotFoundError:
            continue
        found[run_id] = {path: bytes.fromhex(data) for path, data in value.items()}
    return found
