"""Small files that survive a crash whole: replaced, appended to, or locked by one process.

Knows nothing about what they hold.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bridge.errors import InfrastructureError
from bridge.system.clock import Clock, SystemClock

_TRIES = 10
_PAUSE_S = 0.05
_NO_LOCKS = (
    "use a folder on a disk of this machine (--state DIR; KAKEYA_DATA_DIR for the bus of this machine), or ask for "
    "locks on that file system (Lustre: mount -o flock)"
)


def write_atomically(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o600, suffix: str = "") -> None:
    """Replace a file so that a reader, also after a crash, finds the old content or the new one, never a part.

    Args:
        path: the file; its folder is made.
        data: its new content.
        durable: whether to wait for the disk, the name in its folder included.
        mode: its permissions.
        suffix: how its name ends while it is written, where a reader of the folder would take it for one of its own.
    """
    written = _write_beside(path, data, mode, suffix)
    try:
        if durable:
            _sync(written)  # before the rename, which would else lead to an empty file after a crash
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    if durable:
        _sync(path.parent)


def write_all_atomically(files: Iterable[tuple[Path, bytes]], *, mode: int = 0o600) -> None:
    """Replace files durably, each as `write_atomically` does, and wait for the disk together.

    All are written before the first is waited for, so most reach the disk with the first, and after the renames most
    folders do. After a crash each is whole or as it was.

    Args:
        files: each file with its new content; its folder is made.
        mode: their permissions.
    """
    written: list[tuple[Path, Path]] = []
    try:
        for path, data in files:
            written.append((_write_beside(path, data, mode), path))
        for beside, _ in written:
            _sync(beside)
        for beside, path in written:
            beside.replace(path)
    except BaseException:
        for beside, _ in written:
            beside.unlink(missing_ok=True)
        raise
    for folder in {path.parent for _, path in written}:
        _sync(folder)


def _write_beside(path: Path, data: bytes, mode: int, suffix: str = "") -> Path:
    """Write what is to replace a file, in the same folder, and return where."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A name of its own each time, as threads write at once; git and its gc ignore "tmp_" among its objects.
    descriptor, name = tempfile.mkstemp(prefix="tmp_", suffix=suffix, dir=path.parent)
    try:
        write_all(descriptor, data)
        os.fchmod(descriptor, mode)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return Path(name)


def write_folder_atomically(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a whole folder through a sibling and a rename; another one is replaced, one of the same files stays.

    Args:
        folder: the folder to appear.
        files: content by relative POSIX path; the caller has checked that no path leads outside.
    """
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sibling = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        for name, data in files.items():
            target = sibling / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        try:
            sibling.rename(folder)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
            if not _holds(folder, files):
                old = folder.with_name(f".{folder.name}.old-{secrets.token_hex(4)}")
                folder.rename(old)
                sibling.rename(folder)
                shutil.rmtree(old)
    finally:
        shutil.rmtree(sibling, ignore_errors=True)


def _holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether exactly these files are there: another process was first, and others may be reading them."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    return paths.keys() == files.keys() and all(
        not path.is_symlink() and path.read_bytes() == files[name] for name, path in paths.items()
    )


def append_whole(fd: int, data: bytes, *, durable: bool = True) -> None:
    """Append to an open file; what a full disk cut off is taken away again, so that the next line is whole.

    Args:
        fd: the file.
        data: whole lines.
        durable: whether to wait for the disk.

    Raises:
        OSError: nothing was appended.
    """
    size = os.fstat(fd).st_size
    try:
        write_all(fd, data)
        if durable:
            os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it at the descriptor's position: on a full disk the first write is short, and only the next fails.

    Raises:
        OSError: the disk did not take it.
    """
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@contextlib.contextmanager
def in_turn(descriptor: int, within_s: float, clock: Clock) -> Iterator[None]:
    """Let one process or thread at a time go on that has opened a file or folder, and close it at the end.

    Args:
        descriptor: of what was opened for this.
        within_s: after so long, one that hangs holds nobody up any more.
        clock: times that.
    """
    until_s = clock.steady_s() + within_s
    try:
        while not _takes(descriptor) and clock.steady_s() < until_s:
            clock.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def folder_in_turn(folder: Path, within_s: float = 10.0) -> Iterator[None]:
    """Let one process or thread at a time read and replace what lies in a folder, which is made where it is not there.

    Args:
        folder: the folder.
        within_s: after so long, one that hangs holds nobody up any more.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with in_turn(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), within_s, SystemClock()):
        yield


def _takes(descriptor: int) -> bool:
    try:
        return try_lock(descriptor)
    except OSError:  # none is to be had, however long one waits
        return True


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file or folder; return False where somebody else holds it.

    Raises:
        OSError: its file system gives no locks, as some of clusters do not.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class NameLock:
    """Held by the one process that acts under a runner's name; the kernel lets go of it when that process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether we hold it now.

        Tries for half a second: a process that tests whether a runner is alive holds the lock for an instant.

        Raises:
            InfrastructureError: its file system gives no locks.
        """
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not self._lock(fd):
                return False
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
            self._fd = fd
            return True
        finally:
            if self._fd != fd:
                os.close(fd)

    def _lock(self, fd: int) -> bool:
        for _ in range(_TRIES):
            try:
                if try_lock(fd):
                    return True
            except OSError as error:
                words = f"no lock can be taken on {self._path}: {error.strerror}"
                raise InfrastructureError(words, remedy=_NO_LOCKS) from error
            SystemClock().sleep(_PAUSE_S)
        return False

    def release(self) -> None:
        """Release the lock; without holding it, do nothing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            InfrastructureError: another process acts under this name, or there are no locks.
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
