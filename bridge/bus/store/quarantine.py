"""Remember objects that were looked at and are no good, so that each costs one look, also after a restart.

An object's id is its content: what was found about it once holds for ever, for this version of the reader. What the
remote could not give rests only for a while. Knows nothing about what the objects should have been.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bridge.bus.store.interface import MissingObjectError
from bridge.errors import BusError, ObjectError
from bridge.system.clock import Clock
from bridge.system.durable import append_whole, write_atomically
from bridge.version import VERSION

KEPT_MAX_COUNT: Final = 20_000
REASON_MAX_CHARS: Final = 300
REST_S: Final = (60.0, 3600.0)  # for what the remote did not give: the first rest, and the longest


class Quarantine:
    """The reasons why objects are not read again, by what they were read as.

    Args:
        path: a file of JSON lines that outlives the process, or None to remember in memory only.
        clock: times the rests.
    """

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._version = VERSION
        self._reasons: dict[tuple[str, str], str] = {}
        self._resting: dict[tuple[str, str], tuple[float, float, str]] = {}
        self._lock = threading.Lock()
        if path is not None:
            self._load(path)

    def reason(self, use: str, oid: str) -> str | None:
        """Return why an object is no good for this use, or None."""
        with self._lock:
            return self._reasons.get((use, oid))

    def allows(self, use: str, oid: str) -> bool:
        """Return whether an object may be read now."""
        return self.reason(use, oid) is None and self.resting(use, oid) is None

    def resting(self, use: str, oid: str) -> str | None:
        """Return why the remote is not asked for an object now, or None."""
        with self._lock:
            rest = self._resting.get((use, oid))
            return rest[2] if rest is not None and self._clock.steady_s() < rest[0] else None

    def add(self, use: str, ref: str, oid: str, error: BusError) -> None:
        """Note what was found: for ever where the object is no good, for a while where the remote does not give it."""
        if isinstance(error, ObjectError):
            self._keep(use, oid, f"{ref}: {error.message}"[:REASON_MAX_CHARS])
        elif isinstance(error, MissingObjectError):
            self.rest(use, ref, oid, error)

    def rest(self, use: str, ref: str, oid: str, error: Exception) -> None:
        """Leave an object alone for a while; each rest is twice as long as the one before."""
        with self._lock:
            before_s = self._resting.get((use, oid), (0.0, REST_S[0] / 2, ""))[1]
            rest_s = min(2 * before_s, REST_S[1])
            if len(self._resting) >= KEPT_MAX_COUNT:
                self._resting.pop(next(iter(self._resting)))
            words = f"{ref}: {error.args[0] if error.args else error}"[:REASON_MAX_CHARS]
            self._resting[use, oid] = (self._clock.steady_s() + rest_s, rest_s, words)

    @contextmanager
    def reading(self, use: str, ref: str, oid: str) -> Iterator[None]:
        """Read an object within this: one that is known to be no good is refused at once, another one is noted.

        Raises:
            ObjectError: it is no good; the message names the ref.
            MissingObjectError: the remote did not give it a moment ago.
        """
        reason, resting = self.reason(use, oid), self.resting(use, oid)
        if reason is not None:
            raise ObjectError(reason)
        if resting is not None:
            raise MissingObjectError(resting)
        try:
            yield
        except (ObjectError, MissingObjectError) as error:
            self.add(use, ref, oid, error)
            if not isinstance(error, ObjectError) or ref in error.message:
                raise
            raise type(error)(f"{ref}: {error.message}") from error

    def known(self) -> tuple[tuple[str, str, str], ...]:
        """Return (use, object id, reason) of what is no good for ever, oldest first."""
        with self._lock:
            return tuple((use, oid, why) for (use, oid), why in self._reasons.items())

    def _keep(self, use: str, oid: str, why: str) -> None:
        with self._lock:
            if self._reasons.get((use, oid)) == why:
                return
            self._reasons[use, oid] = why
            if self._path is None:
                return
            if len(self._reasons) > KEPT_MAX_COUNT:
                self._reasons = dict(list(self._reasons.items())[-KEPT_MAX_COUNT // 2 :])
                write_atomically(
                    self._path, b"".join(self._line(*key, reason) for key, reason in self._reasons.items())
                )
                return
            descriptor = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                append_whole(descriptor, self._line(use, oid, why))
            finally:
                os.close(descriptor)

    def _line(self, use: str, oid: str, why: str) -> bytes:
        return json.dumps({"use": use, "oid": oid, "reason": why, "version": self._version}).encode() + b"\n"

    def _load(self, path: Path) -> None:
        """Read the file; a line that was cut off, or that another version wrote, is looked at again."""
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for raw in lines[-KEPT_MAX_COUNT:]:
            try:
                line = json.loads(raw)
                if line["version"] == self._version:
                    self._reasons[str(line["use"]), str(line["oid"])] = str(line["reason"])
            except (ValueError, KeyError, TypeError):
                continue
