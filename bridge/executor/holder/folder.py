"""The folder of one run: all that its runner and its supervisor share, so that either may die.

`job.json` goes in; `log`, `marks`, `progress`, `outputs.tar` and `kept.json` come out. `lock` is held by the supervisor
while it lives, and says who it is from before the first command on; a byte in `stop` ends the run. See
docs/supervisor.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal

import pydantic
from pydantic import ConfigDict

from bridge.executor.command.outputs import Stamp
from bridge.executor.holder.regular_files import open_regular, read_regular
from bridge.executor.interface import Execution, HostPaths, RunDirectory
from bridge.records.base import Count, Moment, Record, Sha256, Text
from bridge.records.jobspec import JobSpec
from bridge.records.run import HostRecord, SandboxApplied
from bridge.strictjson import StrictJsonError
from bridge.system.clock import Clock
from bridge.system.durable import write_all

_READ_BYTES: Final = 1 << 20
_JSON_MAX_BYTES: Final = 1 << 26
_DEPTH_MAX: Final = 32
_TRIES, _TRY_S = 50, 0.02
_WITHDRAWN: Final = b"withdrawn: "  # in `lock`, where facts would be
STOPS: Final[dict[bytes, Literal["cancelled", "interrupted"]]] = {b"c": "cancelled", b"i": "interrupted"}


class JobFile(Record):
    """What a supervisor gets: `job.json`, readable by the runner's user alone, because it holds secrets.

    Attributes:
        root, work, out, home, tmp: the run's directories.
        secrets: what must not appear in log or reports.
        offered: what the sandbox proved to be for the run's user, and for the user of its peers.
        host: the machine, where the runner is on the same one; None lets the supervisor look.
        tied: whether the run ends, as interrupted, when the process that said go is gone.
        paths: what the sandbox hides and shows, where a node is to try its own; None where it was tried already.
        trials: the folder in which nodes keep the outcomes, each for its own boot.
    """

    schema_version: Literal[1] = 1
    spec: JobSpec
    root: str
    work: str
    out: str
    home: str
    tmp: str
    secrets: tuple[str, ...] = ()
    offered: SandboxApplied
    peer_offered: SandboxApplied | None = None
    host: HostRecord | None = None
    tied: bool = False
    paths: HostPaths | None = None
    trials: str | None = None

    @property
    def directory(self) -> RunDirectory:
        """The run's directories as paths."""
        return RunDirectory(Path(self.root), Path(self.work), Path(self.out), Path(self.home), Path(self.tmp))


class SupervisorFacts(Record):
    """Who supervises the run, in `lock` from before the first command on.

    Attributes:
        started: the process's start, seconds since the epoch: with the pid it names the process.
        boot_id: of the kernel it runs on; empty where there is none.
        marker: in the environment of every process of the run.
        began: wall time at which the first command was about to start.
        out: the report directory, where it lies while the run goes on.
        device, inode, since_ns: which directory that was, and when.
    """

    schema_version: Literal[1] = 1
    pid: Count
    started: float
    boot_id: Text
    version: Text
    marker: Text
    began: Moment
    out: str
    device: Count
    inode: Count
    since_ns: Count

    @property
    def stamp(self) -> Stamp:
        """The stamp that reports are compared with."""
        return Stamp(self.device, self.inode, self.since_ns)


class KeptExecution(Record):
    """What a run came to: `kept.json`, written last; log and reports lie beside it.

    Attributes:
        version: of the supervisor.
        log_sha256, outputs_sha256: of the two other files.
        execution: without log and reports; None when the executor refused to start.
        refusal: name of the error, its message and its remedy, when it did.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    schema_version: Literal[1] = 1
    version: Text
    log_sha256: Sha256
    outputs_sha256: Sha256
    execution: Execution | None
    refusal: tuple[Text, Text, Text | None] | None = None


@dataclass(frozen=True)
class FolderFiles:
    """The folder's files, open: what a supervisor of another user is given instead of the folder.

    In the order in which they are passed.
    """

    job: int
    log: int
    marks: int
    result: int
    outputs: int
    lock: int
    stop: int
    progress: int

    def all(self) -> tuple[int, ...]:
        """Return the descriptors in order."""
        return tuple(getattr(self, field.name) for field in fields(self))


_NAMES: Final = ("job.json", "log", "marks", "kept.json", "outputs.tar", "lock", "stop", "progress")


class RunFolder:
    """One run's folder, as its runner sees it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def log(self) -> Path:
        """The log kept, redacted and capped, as it grows."""
        return self.root / "log"

    def write_job(self, job: JobFile) -> None:
        """Make the folder and its files, for their owner alone; what an earlier try left is emptied.

        Raises:
            OSError: the disk did not take it.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _NAMES:
            data = job.model_dump_json().encode() if name == "job.json" else b""
            descriptor = open_regular(self.root / name, os.O_WRONLY | os.O_CREAT)
            try:
                os.ftruncate(descriptor, 0)
                write_all(descriptor, data)
            finally:
                os.close(descriptor)

    def clear(self) -> None:
        """Remove what an earlier try left, which nobody holds and of which nothing ran.

        A supervisor of that try that was given up, and comes only now to take its lock, takes none of the next one.
        """
        for name in _NAMES:
            (self.root / name).unlink(missing_ok=True)

    @contextmanager
    def opened(self) -> Iterator[FolderFiles]:
        """Yield the files, open for a supervisor, until the end of the block.

        Raises:
            OSError: there is no such folder.
        """
        descriptors: list[int] = []
        try:
            for name in _NAMES:
                descriptors.append(open_regular(self.root / name, os.O_RDWR))  # noqa: PERF401
            yield FolderFiles(*descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def taken(self) -> bool:
        """Whether a supervisor holds the lock right now."""
        try:
            descriptor = open_regular(self.root / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not take(descriptor)
        finally:
            os.close(descriptor)

    def facts(self) -> SupervisorFacts | None:
        """Return who supervises or supervised the run; None when no command has been started."""
        try:
            return SupervisorFacts.parse(read_regular(self.root / "lock"))
        except (OSError, StrictJsonError, pydantic.ValidationError):
            return None

    def progress(self) -> bytes:
        """Return what the supervisor last said of the run's progress: JSON, perhaps torn; empty before it did."""
        try:
            return read_regular(self.root / "progress")
        except OSError:  # a supervisor from before there was one, or somebody took it away: the run goes on
            return b""

    def stop(self, ending: Literal["cancelled", "interrupted"]) -> None:
        """Ask the supervisor to end the run; asking again changes nothing.

        Raises:
            OSError: the disk did not take it.
        """
        path = self.root / "stop"
        if path.stat().st_size == 0:
            descriptor = open_regular(path, os.O_WRONLY)
            try:
                write_all(descriptor, next(byte for byte, meaning in STOPS.items() if meaning == ending))
            finally:
                os.close(descriptor)

    def withdraw(self, why: str) -> bool:
        """Refuse the folder to every supervisor to come; False where one has it or had it. Again changes nothing.

        Args:
            why: a word, which `withdrawn` returns.

        Raises:
            OSError: the disk did not take it.
        """
        descriptor = open_regular(self.root / "lock", os.O_RDWR)
        try:
            if not take(descriptor):
                return False
            if data := os.read(descriptor, len(_WITHDRAWN)):
                return data == _WITHDRAWN
            if (self.root / "kept.json").stat().st_size > 0:
                return False  # one had it, and refused the run
            write_all(descriptor, _WITHDRAWN + why.encode("ascii"))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return True

    def withdrawn(self) -> str | None:
        """Return why the folder is refused to every supervisor; None where it is not."""
        with suppress(OSError):
            data = read_regular(self.root / "lock")
            return data.removeprefix(_WITHDRAWN).decode("ascii", "replace") if data.startswith(_WITHDRAWN) else None
        return None

    def job(self) -> JobFile | None:
        """Return what the supervisor was given; None when nothing whole is there."""
        try:
            return JobFile.parse(read_regular(self.root / "job.json"), max_bytes=_JSON_MAX_BYTES, max_depth=_DEPTH_MAX)
        except (OSError, StrictJsonError, pydantic.ValidationError):
            return None

    def kept(self) -> KeptExecution | None:
        """Return what the run came to, log and reports put back; None when nothing whole is there."""
        try:
            data = read_regular(self.root / "kept.json")
            result = KeptExecution.parse(data, max_bytes=_JSON_MAX_BYTES, max_depth=_DEPTH_MAX)
            log, outputs = read_regular(self.log), read_regular(self.root / "outputs.tar")
            if (_sha256(log), _sha256(outputs)) != (result.log_sha256, result.outputs_sha256):
                return None
            if result.execution is None:
                return result
            return result.evolve(execution=replace(result.execution, log=log, reports=unpacked(outputs)))
        except (OSError, ValueError, tarfile.TarError, zlib.error):  # a tar header of no number is a ValueError
            return None


def take(lock: int) -> bool:
    """Take the folder's lock; False when another supervisor has it. It lasts until the last copy is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def take_soon(lock: int, clock: Clock) -> bool:
    """Take the folder's lock, past those who only look whether it is taken; False when another supervisor has it."""
    for _ in range(_TRIES):
        if take(lock):
            return True
        clock.sleep(_TRY_S)
    return False


def write_kept(files: FolderFiles, version: str, execution: Execution | None, refusal: Any = None) -> None:
    """Write what the run came to: reports first, then the file that says that all is there, and what it consists of.

    Raises:
        OSError: the disk did not take it.
    """
    outputs = packed({} if execution is None else execution.reports)
    rewrite(files.outputs, outputs)
    result = KeptExecution(
        version=version,
        log_sha256=_sha256(read_all(files.log)),
        outputs_sha256=_sha256(outputs),
        execution=None if execution is None else replace(execution, log=b"", reports={}),
        refusal=refusal,
    )
    rewrite(files.result, result.model_dump_json().encode())


def packed(reports: dict[str, bytes]) -> bytes:
    """Return reports as a tar archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in reports.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def unpacked(archive: bytes) -> dict[str, bytes]:
    """Return the reports of an archive that `packed` made; nothing is written to disk.

    Raises:
        tarfile.TarError: it is none, or holds anything but whole files: `packed` makes no links, and nothing sparse.
        ValueError: a header holds no number where one belongs.
    """
    reports: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.type == tarfile.REGTYPE and not member.issparse() else None
            if file is None:
                raise tarfile.ReadError(f"{member.name} is no whole file")
            reports[member.name] = file.read()
    return reports


def read_all(descriptor: int) -> bytes:
    """Return a file's bytes from its beginning."""
    data = bytearray()
    while block := os.pread(descriptor, _READ_BYTES, len(data)):
        data += block
    return bytes(data)


def rewrite(descriptor: int, data: bytes) -> None:
    """Put data in the place of what a file holds; a reader may see a part of it.

    Raises:
        OSError: the disk did not take it.
    """
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    write_all(descriptor, data)


def make_durable(files: FolderFiles) -> None:
    """Bring what was written to the disk; the runner need not wait for it, because digests show what is torn.

    Raises:
        OSError: the disk did not take it.
    """
    for descriptor in (files.log, files.outputs, files.result):
        os.fsync(descriptor)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
