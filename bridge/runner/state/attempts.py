"""Count how often this host has run the same thing: the best of ten reruns is no evidence.

Knows digests and ids only.
"""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from bridge import strictjson
from bridge.errors import JournalError
from bridge.records import Attempt, JobSpec
from bridge.records.base import Record, RunId, Sha256
from bridge.system.durable import append_whole


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
                self._append(_Line(key=key, id=run_id).canonical() + b"\n")
                ids.append(run_id)
            number = ids.index(run_id) + 1
            return Attempt(key=key, number=number, earlier=tuple(ids[: number - 1]))

    def _append(self, raw: bytes) -> None:
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                append_whole(fd, raw)
            finally:
                os.close(fd)
        except OSError as error:
            raise JournalError(f"cannot write {self._path}: {error.strerror}") from error
