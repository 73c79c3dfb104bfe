"""Small durable files of the runner's state."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from bridge.errors import InfrastructureError
from bridge.system.clock import SystemClock

_TRIES = 10
_PAUSE_S = 0.05


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that a crash leaves the old or the new one, never a part."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.new")  # slots write at the same time
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            _write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def append_whole(fd: int, data: bytes) -> None:
    """Append to an open file durably; what a full disk cut off is taken away again, so that the next line is whole.

    Raises:
        OSError: nothing was appended.
    """
    size = os.fstat(fd).st_size
    try:
        _write_all(fd, data)
        os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


def _write_all(fd: int, data: bytes) -> None:
    """Write everything: a disk that fills up takes a part and says so only when asked for the rest."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


class NameLock:
    """Held by the one process that acts under a runner's name; the kernel lets go of it when that process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it; return whether we hold it now.

        Tries for a moment: whoever wants to know whether a runner lives holds the lock for an instant.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for _ in range(_TRIES):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                SystemClock().sleep(_PAUSE_S)
        else:
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._fd = fd
        return True

    def release(self) -> None:
        """Let go."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            InfrastructureError: another process acts under this name.
        """
        if not self.try_acquire():
            pid = self._path.read_text(encoding="ascii", errors="replace").strip() or "unknown"
            raise InfrastructureError(
                f"another runner of this name is running (process {pid}, lock {self._path})",
                remedy="stop it, or give this one another name in policy.toml",
            )
        try:
            yield
        finally:
            self.release()
