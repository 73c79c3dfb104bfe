"""Keep a repository of ours small and whole: pack what is many, delete what is old, clear what a power cut left.

What a ref below `KEPT` leads to is on the disk. Refs below `FETCHED`, and the objects that only they lead to, spare
another fetch and are written without waiting for the disk.

Run as `python -P -m bridge.bus.store.upkeep REPOSITORY [FOLDER_OF_OBJECTS ...]`: tends one, with what it borrows.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bridge.errors import InfrastructureError
from bridge.limits import GIT_UPKEEP_WALL_S
from bridge.system.clock import SystemClock
from bridge.system.durable import NameLock
from bridge.system.git import CallStop, Finished
from bridge.system.gitrepository import BareRepository, GitSettings
from bridge.system.process import spawn_detached

KEPT: Final = "refs/kept"
FETCHED: Final = "refs/fetched"
_LOOSE_MANY: Final = 384  # a small file takes a block of the disk
_SAMPLED: Final = ("17", "57", "97", "d7")  # of 256 folders, which ids fill evenly
_PACKS_MANY: Final = 50  # each checked fetch keeps its objects in a pack of its own
_PRUNE_EVERY_S: Final = 24 * 3600.0
_PRUNING: Final = "pruning"
_PRUNED: Final = "pruned"
_KEPT_S: Final = 2 * 24 * 3600.0
_LOCK: Final = "upkeep.lock"
_OID = re.compile(r"[0-9a-f]{40}\n")


def tend(repository: BareRepository, stop: CallStop | None = None) -> None:
    """Do what `tidy` and `prune` do, unless somebody else does it for this repository now.

    Two that prune at once share the mark which says that an object may be here without what it leads to, and the first
    to end would take it from the other.
    """
    with _alone(repository) as alone:
        if alone:
            tidy(repository, stop)
            prune(repository, _KEPT_S, stop)


def tend_apart(repository: BareRepository, borrowed: Sequence[Path]) -> None:
    """Have a process of its own tend a repository if there is something to do; nobody waits for it.

    Args:
        repository: one of ours.
        borrowed: folders of objects that it reads as well.

    Raises:
        InfrastructureError: the process cannot be started.
    """
    if _has_many_packs(repository) or _has_many_loose(repository) or _is_prune_due(repository):
        words = [str(repository.path), *map(str, borrowed)]
        log = repository.path.parent / "upkeep.log"
        spawn_detached([sys.executable, "-P", "-m", __name__, *words], log=log)


def tidy(repository: BareRepository, stop: CallStop | None = None) -> None:
    """Pack loose objects, or small packs, when there are many; nothing is deleted, referenced or not.

    Args:
        repository: one of ours.
        stop: when that is given up; None: never.
    """
    if _has_many_packs(repository):
        _run(repository, ["repack", "-d", "-l", "--quiet", "--geometric=2"], stop)
    if _has_many_loose(repository):
        _run(repository, ["maintenance", "run", "--quiet", "--task=loose-objects"], stop)
        _run(repository, ["prune-packed", "--quiet"], stop)  # only what a pack holds now


def prune(repository: BareRepository, older_than_s: float, stop: CallStop | None = None) -> None:
    """Delete refs that spare a fetch and are so old, and what nothing leads to any more and is so old; once a day.

    What went is fetched again where it is needed again. One that failed, or was given up, is tried again next time.
    """
    if not _is_prune_due(repository):
        return
    now_s = SystemClock().now().timestamp()
    for path in (repository.path / FETCHED).glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if now_s - path.stat().st_mtime > older_than_s:
                path.unlink()
    if _delete_unreachable(repository, f"{int(older_than_s)}.seconds.ago", stop):
        (repository.path / _PRUNED).touch()


def is_half_pruned(repository: BareRepository) -> bool:
    """Return whether a prune goes on or was cut off: an object may be here without what it leads to."""
    return (repository.path / _PRUNING).exists()


def recover(repository: BareRepository) -> None:
    """Clear, once after each start of the machine, what it left of files that nobody waited for.

    A ref or an object that is empty would fail every later fetch, repack and prune. Where an object was lost, only what
    was kept stays: what else it belonged to is fetched again.
    """
    stamp, clock = repository.path / "recovered", SystemClock()
    booted_s = clock.now().timestamp() - clock.steady_s()
    if (stamp.exists() and stamp.stat().st_mtime > booted_s) or not os.access(repository.path, os.W_OK):
        return
    if any(_damaged(repository)):
        with _alone(repository) as alone:
            if not alone:
                return  # it is being cleared, and what fails of it meanwhile is tried again
            _keep_only_kept(repository)
    stamp.touch()


def _damaged(repository: BareRepository) -> Iterator[Path]:
    """Yield the objects that are empty, then the refs that lead nowhere."""
    yield from (path for path in repository.objects.glob("??/" + "?" * 38) if not _is_deflated(path))
    yield from (ref for ref in _refs(repository) if not _leads_somewhere(repository, ref))


def _keep_only_kept(repository: BareRepository) -> None:
    """Delete what is damaged, all refs that spare a fetch, and every object that nothing leads to any more."""
    for path in _damaged(repository):
        path.unlink(missing_ok=True)
    for path in (repository.path / FETCHED).glob("*"):
        path.unlink(missing_ok=True)
    for path in _refs(repository):
        # One that was killed says nothing about what is here: a result that waits for its delivery stays.
        if _run(repository, ["rev-list", "--objects", "--quiet", path.read_text("ascii").strip()], None).exit_code > 0:
            path.unlink(missing_ok=True)
    _delete_unreachable(repository, "now", None)


def _delete_unreachable(repository: BareRepository, expiry: str, stop: CallStop | None) -> bool:
    """Delete what nothing leads to and is older than git's `expiry`; return whether all of it went.

    Where git fails by itself, it does so before it deletes anything; where it was killed, the mark stays.
    """
    mark = repository.path / _PRUNING
    mark.touch()
    # Only what was packed anew may go: a repack that failed has met an object that is missing or broken.
    for call in (
        ["repack", "-A", "-d", "-l", "--quiet", f"--unpack-unreachable={expiry}"],
        ["prune", f"--expire={expiry}"],
    ):
        done = _run(repository, call, stop)
        if done.exit_code > 0:
            mark.unlink(missing_ok=True)
        if done.exit_code != 0:
            return False
    mark.unlink(missing_ok=True)
    return True


def _has_many_packs(repository: BareRepository) -> bool:
    return sum(entry.name.endswith(".pack") for entry in os.scandir(repository.objects / "pack")) > _PACKS_MANY


def _has_many_loose(repository: BareRepository) -> bool:
    sample = sum(1 for name in _SAMPLED for _ in (repository.objects / name).glob("*"))
    return sample > _LOOSE_MANY * len(_SAMPLED) // 256


def _is_prune_due(repository: BareRepository) -> bool:
    """Whether one was cut off, or the last was long ago; one that was never pruned counts from now on."""
    stamp = repository.path / _PRUNED
    if not stamp.exists():
        stamp.touch()
    return is_half_pruned(repository) or SystemClock().now().timestamp() - stamp.stat().st_mtime >= _PRUNE_EVERY_S


@contextlib.contextmanager
def _alone(repository: BareRepository) -> Iterator[bool]:
    """Hold the lock of a repository's upkeep; tell whether it was free, which none is where there are no locks."""
    lock, is_free = NameLock(repository.path / _LOCK), False
    with contextlib.suppress(InfrastructureError):
        is_free = lock.try_acquire()
    try:
        yield is_free
    finally:
        lock.release()


def _run(repository: BareRepository, call: list[str], stop: CallStop | None) -> Finished:
    return repository.run(call, timeout_s=GIT_UPKEEP_WALL_S, stop=stop)


def _refs(repository: BareRepository) -> Iterator[Path]:
    for folder in (KEPT, FETCHED):
        yield from (path for path in (repository.path / folder).glob("*") if path.suffix != ".lock")


def _leads_somewhere(repository: BareRepository, ref: Path) -> bool:
    try:
        text = ref.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return False
    if _OID.fullmatch(text) is None:
        return False
    with repository.reader() as reader:
        return reader.has(text.strip())


def _is_deflated(path: Path) -> bool:
    """Whether a file begins as zlib's do (RFC 1950, section 2.2): a file system fills what it lost with zeros."""
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except FileNotFoundError:
        return True
    return len(head) == 2 and head[0] & 15 == 8 and int.from_bytes(head, "big") % 31 == 0


if __name__ == "__main__":
    os.nice(19)
    tend(BareRepository(Path(sys.argv[1]), GitSettings(alternates=tuple(map(Path, sys.argv[2:])))))
