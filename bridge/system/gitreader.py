"""Read objects of a repository within bounds: loose ones without a process, packed ones from git's object server.

Knows nothing about where a repository comes from.
"""

from __future__ import annotations

import threading
from typing import Protocol

from bridge.errors import GitError
from bridge.limits import GIT_LOCAL_WALL_S
from bridge.system.git import Process, end, kill
from bridge.system.gitobjects import Kind


class GitObjectMissingError(GitError):
    """An object is not in the repository."""


class GitObjectKindError(GitError):
    """An object is of another kind than its reader expects."""


class GitObjectTooLargeError(GitError):
    """An object is larger than its reader allows."""


class ObjectSource(Protocol):
    """Where a reader reads."""

    def loose_size_and_content(self, oid: str, max_bytes: int) -> tuple[str, int, bytes] | None:
        """Return kind, size and up to `max_bytes` of a loose object, or None when it is not loose here."""
        ...

    def cat_file(self) -> Process:
        """Start git's object server on pipes."""
        ...


class ObjectReader:
    """Reads objects of a repository and its alternates, within bounds."""

    def __init__(self, repository: ObjectSource) -> None:
        self._repository = repository
        self._process: Process | None = None
        self._watchdog: threading.Timer | None = None

    def read(self, oid: str, kind: Kind, max_bytes: int) -> bytes:
        """Return an object's content.

        Raises:
            GitObjectMissingError: it is not here.
            GitObjectKindError: it is of another kind.
            GitObjectTooLargeError: it is larger than `max_bytes`.
            GitError: git failed.
        """
        loose = self._repository.loose_size_and_content(oid, max_bytes)
        if loose is not None:
            self._check(oid, kind, loose[0], loose[1], max_bytes)
            return loose[2]
        found = self._info(oid)
        if found is None:
            raise GitObjectMissingError(f"object {oid[:12]} is not here")
        self._check(oid, kind, *found, max_bytes)
        self._ask(f"contents {oid}")
        return self._exactly(found[1] + 1)[:-1]

    def size(self, oid: str) -> int:
        """Return an object's size in bytes.

        Raises:
            GitObjectMissingError: it is not here.
        """
        loose = self._repository.loose_size_and_content(oid, 0)
        found = loose[:2] if loose is not None else self._info(oid)
        if found is None:
            raise GitObjectMissingError(f"object {oid[:12]} is not here")
        return found[1]

    def has(self, oid: str) -> bool:
        """Return whether an object is here."""
        return self._repository.loose_size_and_content(oid, 0) is not None or self._info(oid) is not None

    def close(self) -> None:
        """End the process, if one was started."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._process is not None:
            end(self._process)
            self._process = None

    @staticmethod
    def _check(oid: str, kind: Kind, found_kind: str, size: int, max_bytes: int) -> None:
        if found_kind != kind:
            raise GitObjectKindError(f"object {oid[:12]} is a {found_kind}; expected a {kind}")
        if size > max_bytes:
            raise GitObjectTooLargeError(f"{kind} {oid[:12]} has {size} bytes; at most {max_bytes} are read")

    def _info(self, oid: str) -> tuple[str, int] | None:
        parts = self._ask(f"info {oid}").split()
        if len(parts) == 2 and parts[1] == "missing":
            return None
        if len(parts) != 3 or parts[0] != oid:
            raise GitError(f"git cat-file answered {parts[:4]!r} about {oid}")
        return parts[1], int(parts[2])

    def _ask(self, command: str) -> str:
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - asked for
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(command.encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise GitError("git cat-file ended early") from error
        return process.stdout.readline(1024).decode("ascii", "replace")

    def _exactly(self, size: int) -> bytes:
        stream = self._running().stdout
        assert stream is not None  # noqa: S101
        data = stream.read(size)
        if len(data) != size:
            raise GitError(f"git cat-file ended after {len(data)} of {size} bytes")
        return data

    def _running(self) -> Process:
        if self._process is None:
            self._process = process = self._repository.cat_file()
            self._watchdog = threading.Timer(GIT_LOCAL_WALL_S * 3, kill, (process.pid,))
            self._watchdog.daemon = True
            self._watchdog.start()
        return self._process
