"""Read objects of a repository through one `git cat-file --batch-command` that stays open between reads.

What strangers pushed is inflated and patched in that process: it has a memory limit and a time limit, and nothing of
an object is asked for before its size is known. Knows nothing about where a repository comes from.
"""

from __future__ import annotations

import os
import re
import selectors
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from bridge.errors import GitError
from bridge.limits import GIT_LOCAL_WALL_S, GIT_OBJECT_MEMORY_BYTES, GIT_OBJECT_SERVER_BYTES
from bridge.system.clock import SystemClock
from bridge.system.git import GIT_NEEDED, Process, end, last_words, start
from bridge.system.gitobjects import Kind
from bridge.system.process import limit_memory

_OID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PIECE_BYTES: Final = 64 * 1024
_LINE_MAX_BYTES: Final = 1024
_ERRORS_MAX_BYTES: Final = 4096  # of what git says beside its answers, the last
# A pack is mapped in windows of a GiB unless git is told otherwise, and a large blob that is no delta is inflated as a
# whole: both would meet the memory limit on a repository in order.
_SMALL_MEMORY: Final = (
    "-c", "core.packedGitWindowSize=32m", "-c", "core.packedGitLimit=256m", "-c", "core.bigFileThreshold=1m",
)  # fmt: skip
_USAGE: Final = "--batch-all-objects"  # what a git prints that does not know an option of `cat-file`
_CLOCK: Final = SystemClock()
_Answer = TypeVar("_Answer")


class GitObjectMissingError(GitError):
    """An object is not in the repository."""


class GitObjectKindError(GitError):
    """An object is of another kind than its reader expects."""


class GitObjectTooLargeError(GitError):
    """An object is larger than its reader allows."""


class _ServerEndedError(Exception):
    """Git's object server ended before its answer did; says why in its own words."""


class _ObjectServer:
    """A running `git cat-file --batch-command`; one thread at a time speaks with it.

    Args:
        process: it, on pipes.
        quiet_s: how long it may send nothing in the middle of an answer.
    """

    def __init__(self, process: Process, quiet_s: float) -> None:
        assert process.stdin is not None  # noqa: S101 - `start` makes all three
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._process, self._stdin = process, process.stdin
        self._answers, self._errors = process.stdout.fileno(), process.stderr.fileno()
        self._quiet_s = quiet_s
        self._deadline_s = 0.0
        self._buffer, self._words = bytearray(), bytearray()
        self._selector = selectors.PollSelector()  # holds no descriptor of its own
        for descriptor in (self._answers, self._errors):
            self._selector.register(descriptor, selectors.EVENT_READ)

    def info(self, oid: str) -> tuple[str, int] | None:
        """Return kind and size of an object, None where it is not here."""
        header = self._ask(f"info {oid}")
        return None if header == [oid, "missing"] else self._parse(header, oid)

    def contents(self, oid: str, kind: str, size: int) -> bytes:
        """Return the content of an object of this kind and size."""
        header = self._ask(f"contents {oid}")
        if self._parse(header, oid) != (kind, size):
            raise GitError(f"git cat-file gave {' '.join(header)!r}; expected {oid} {kind} {size}")
        while len(self._buffer) <= size:
            self._receive()
        content = bytes(memoryview(self._buffer)[:size])
        self._buffer.clear()  # a line feed ends it
        return content

    @staticmethod
    def _parse(header: list[str], oid: str) -> tuple[str, int]:
        if len(header) != 3 or header[0] != oid or not header[2].isdecimal():
            raise GitError(f"git cat-file answered {header[:4]!r} about {oid}")
        return header[1], int(header[2])

    def _ask(self, request: str) -> list[str]:
        self._deadline_s = _CLOCK.steady_s() + 3 * self._quiet_s
        try:
            self._stdin.write(f"{request}\n".encode("ascii"))
            self._stdin.flush()
        except OSError:
            raise self._ended() from None
        while (line_end := self._buffer.find(b"\n")) < 0 and len(self._buffer) < _LINE_MAX_BYTES:
            self._receive()
        header = bytes(self._buffer[:line_end]).decode("ascii", "replace")
        del self._buffer[: line_end + 1]
        return header.split()

    def _receive(self) -> None:
        """Wait for more of an answer; read what git says beside it, which would fill its pipe otherwise."""
        left_s = min(self._quiet_s, self._deadline_s - _CLOCK.steady_s())
        ready = self._selector.select(left_s) if left_s > 0 else []
        if not ready:
            raise GitError(f"git cat-file did not answer within {self._quiet_s:g} s", remedy="try again")
        for key, _ in ready:
            piece = os.read(key.fd, _PIECE_BYTES)
            if key.fd == self._answers:
                if not piece:
                    raise self._ended()
                self._buffer += piece
            elif piece:
                self._words += piece
                del self._words[:-_ERRORS_MAX_BYTES]
            else:
                self._selector.unregister(key.fd)

    def _ended(self) -> _ServerEndedError:
        """Return why it ended; what it said last may still lie in the pipe."""
        os.set_blocking(self._errors, False)
        try:
            while piece := os.read(self._errors, _PIECE_BYTES):
                self._words += piece
        except BlockingIOError:
            pass
        return _ServerEndedError(last_words(self._words.decode("utf-8", "replace")))


class ObjectReader:
    """Reads objects of a repository and of the folders it borrows from, within bounds; threads take turns.

    Git's object server is started by the first read. It ends with `close`, or with this reader, or with this process.

    Args:
        repository: the folder of a bare repository.
        environment: of git.
        object_folders: the repository's own, and those that it reads as well.
        quiet_s: how long git may send nothing in the middle of an answer; an answer takes three times as long at most.
    """

    def __init__(
        self,
        repository: Path,
        environment: Mapping[str, str],
        object_folders: Sequence[Path],
        *,
        quiet_s: float = GIT_LOCAL_WALL_S,
    ) -> None:
        self._path = repository
        # A single piece of memory above this is refused by git itself, also where the kernel knows no limit.
        self._environment = {**environment, "GIT_ALLOC_LIMIT": str(GIT_OBJECT_MEMORY_BYTES)}
        self._pack_folders = tuple(folder / "pack" for folder in object_folders)
        self._quiet_s = quiet_s
        self._lock = threading.Lock()
        self._server: _ObjectServer | None = None
        self._end: Callable[[], object] | None = None
        self._packs: frozenset[str] = frozenset()

    def refresh(self) -> None:
        """End git's object server where a pack was deleted since it started: it would go on reading that one."""
        with self._lock:
            if self._server is not None and not self._packs <= self._list_packs():
                self._close()

    def read(self, oid: str, kind: Kind, max_bytes: int) -> bytes:
        """Return an object's content.

        Raises:
            GitObjectMissingError: it is not here.
            GitObjectKindError: it is of another kind.
            GitObjectTooLargeError: it is larger than `max_bytes`.
            GitError: git failed, its memory or its time was up.
        """
        with self._lock:
            actual_kind, size = self._require(oid)
            if actual_kind != kind:
                raise GitObjectKindError(f"object {oid[:12]} is a {actual_kind}; expected a {kind}")
            if size > max_bytes:
                raise GitObjectTooLargeError(f"{kind} {oid[:12]} has {size} bytes; at most {max_bytes} are read")
            return self._attempt(oid, lambda server: server.contents(oid, kind, size))

    def size(self, oid: str) -> int:
        """Return an object's size in bytes.

        Raises:
            GitObjectMissingError: it is not here.
            GitError: git failed.
        """
        with self._lock:
            return self._require(oid)[1]

    def has(self, oid: str) -> bool:
        """Return whether an object is here."""
        with self._lock:
            return self._info(oid) is not None

    def close(self) -> None:
        """End git's object server, if one was started; the next read starts another."""
        with self._lock:
            self._close()

    def _require(self, oid: str) -> tuple[str, int]:
        info = self._info(oid)
        if info is None:
            raise GitObjectMissingError(f"object {oid[:12]} is not here")
        return info

    def _info(self, oid: str) -> tuple[str, int] | None:
        if _OID.fullmatch(oid) is None:
            raise GitError(f"{oid[:70]!r} is no object id; expected 40 or 64 hexadecimal digits")
        return self._attempt(oid, lambda server: server.info(oid))

    def _attempt(self, oid: str, ask: Callable[[_ObjectServer], _Answer]) -> _Answer:
        """Return what the server answers; start it anew where it ended, once.

        Raises:
            GitError: it ended again, did not answer in time, or answered something else.
        """
        try:
            try:
                return ask(self._running())
            except _ServerEndedError:
                self._close()
                return ask(self._running())
        except _ServerEndedError as error:
            self._close()
            if _USAGE in str(error):
                raise GitError(
                    "this git has no `cat-file --batch-command`; expected " + GIT_NEEDED, remedy=f"install {GIT_NEEDED}"
                ) from error
            raise GitError(
                f"git cat-file ended while it read object {oid[:12]}: {error}",
                remedy="the object may be damaged, or too large to be read within git's memory limit; "
                "in each repository it may come from: git fsck",
            ) from error
        except BaseException:
            self._close()  # the rest of its answer would be taken for the next one
            raise

    def _running(self) -> _ObjectServer:
        if self._server is None:
            self._packs = self._list_packs()
            argv = ["git", f"--git-dir={self._path}", *_SMALL_MEMORY, "cat-file", "--batch-command"]
            process = start(argv, self._environment, cwd=self._path, stdin=True)
            self._end = weakref.finalize(self, end, process, graceful=False)
            limit_memory(process.pid, GIT_OBJECT_SERVER_BYTES)
            self._server = _ObjectServer(process, self._quiet_s)
        return self._server

    def _close(self) -> None:
        self._server = None
        if self._end is not None:
            self._end()
            self._end = None

    def _list_packs(self) -> frozenset[str]:
        return frozenset(str(path) for folder in self._pack_folders for path in folder.glob("*.pack"))
