"""What is left of a run by names when its supervisor, which is its proxy, or another process of it is killed?

Each case kills ten runs, one after the other, at moments drawn from the seed that its row names. The program inside
holds unfinished requests open at the proxy, asks for names in a loop, and has a child in a session of its own that
ignores requests to end. What is left is looked for by what the run was while it went on: its processes, its
namespaces, its user's objects, its folders' paths.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

import psutil

from benchmarks.studies.sandbox.escapes.situations import new_folder
from benchmarks.studies.sandbox.jobs import QUIET, handle_of
from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.errors import InfrastructureError
from bridge.executor.holder.folder import RunFolder
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import make_directory
from bridge.ids import new_id
from bridge.limits import MIB
from bridge.records.jobspec import Command, JobSpec, Limits, SandboxSpec
from bridge.system.clock import SystemClock

UID: Final = 54342
VICTIMS: Final = {"supervisor": 12, "another process": 4}
KILLS: Final = 10
WITHIN_S: Final = 1.5
_GONE_S: Final = 10.0
_STARTS_S: Final = 30.0
_GOES_ON_S: Final = 1.0
_LOOK_S: Final = 0.01
NAMESPACES: Final = ("net", "mnt", "pid", "ipc", "user")
LIMITS: Final = Limits(
    wall_s=120.0, inactivity_s=120.0, grace_s=0.3, memory_bytes=512 * MIB, processes=64, open_files=256,
    output_bytes=32 * MIB, log_bytes=MIB,
)  # fmt: skip
PROGRAM: Final = r"""
import os, signal, socket, time
place = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
def connect():
    return socket.create_connection((place[0], int(place[1])), 10)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
unfinished = [connect() for _ in range(4)]
for client in unfinished:
    client.sendall(b"CONNECT data.invalid:443 HTTP/1.1\r\n")
while True:
    with connect() as client:
        client.sendall(b"CONNECT data.invalid:443 HTTP/1.1\r\n\r\n")
        client.recv(200)
"""


@dataclass
class Traces:
    """What a run was while it went on: its processes, and the namespaces that only it has."""

    processes: set[psutil.Process] = field(default_factory=set)
    namespaces: set[int] = field(default_factory=set)
    killed_s: float | None = None

    def should_stop(self) -> Literal["cancelled"] | None:
        """Cancel a run that goes on without the process that it lost."""
        over = self.killed_s is not None and time.monotonic() > self.killed_s + _GOES_ON_S
        return "cancelled" if over else None


def cases() -> Sequence[str]:
    """Return all cases: ten kills each."""
    return [f"{victim} {number}" for victim, count in VICTIMS.items() for number in range(count)]


def run(case: str) -> list[Row]:
    """Kill ten runs at drawn moments; a row says for each who was killed, when, how it ended and what was left."""
    drawn = random.Random(case)
    executor = LocalExecutor(SystemClock())
    executor.warm()
    executor.sandbox(UID if os.getuid() == 0 else None)
    victim = case.rpartition(" ")[0]
    with new_folder() as folder, _temporary(folder / "tmp"):
        kills = [_kill(executor, folder / str(number), victim, drawn) for number in range(KILLS)]
    return [{"seed": case, "kills": kills}]


def _kill(executor: LocalExecutor, base: Path, victim: str, drawn: random.Random) -> Row:
    """Start a run, kill one of its processes at a drawn moment, and look at what there is afterwards."""
    base.mkdir()
    after_s, spec = drawn.uniform(0.0, WITHIN_S), _spec()
    directory = make_directory(base / "run")
    handle = handle_of(directory.root)
    open_before = _open_here()
    traces, killed = Traces(), list[str]()

    def follow() -> str:
        with executor.start(spec, directory, handle) as starting:
            began = time.monotonic()
            running = starting.go(replace(QUIET, should_stop=traces.should_stop))
            killer = threading.Thread(target=lambda: killed.append(_at(began + after_s, handle, victim, drawn, traces)))
            killer.start()
            try:
                return running.wait().ending
            except InfrastructureError as error:
                return f"refused: {error.message}"
            finally:
                killer.join()

    ending = follow()
    deadline = time.monotonic() + _GONE_S
    while (left := _left(traces, base, spec.id, handle)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if _open_here() > open_before:
        left["descriptors of who followed it"] = _open_here() - open_before
    return {"killed": killed[0], "after_s": round(after_s, 3), "ending": ending, "processes": len(traces.processes),
            "namespaces": len(traces.namespaces), "left": left}  # fmt: skip


def _at(moment: float, handle: Path, victim: str, drawn: random.Random, traces: Traces) -> str:
    """Watch the run until the moment, then kill one of its processes; return whom.

    The moment is put off until there is a supervisor to kill, and its processes are looked at once more.
    """
    supervisor, patience = None, moment + _STARTS_S
    while (supervisor is None and time.monotonic() < patience) or time.monotonic() < moment:
        facts = RunFolder(handle).facts()
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor = None if facts is None else psutil.Process(facts.pid)
            if supervisor is not None:
                _watch(supervisor, traces)
        time.sleep(_LOOK_S)
    if supervisor is None:
        raise RuntimeError(f"the run had no supervisor after {_STARTS_S} s")
    others: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        others = _watch(supervisor, traces)
    target = drawn.choice(others) if victim != "supervisor" and others else supervisor
    with contextlib.suppress(psutil.NoSuchProcess):
        name = str(target.name())
        target.kill()
        traces.killed_s = time.monotonic()
        return "supervisor" if target == supervisor else name
    traces.killed_s = time.monotonic()
    return "nobody: it had ended"


def _watch(supervisor: psutil.Process, traces: Traces) -> list[psutil.Process]:
    """Note the processes of a run and the namespaces that are not this process's; return those below the supervisor."""
    below = supervisor.children(recursive=True)
    traces.processes |= {supervisor, *below}
    for process in below:
        traces.namespaces |= _namespaces(process.pid) - _namespaces(os.getpid())
    return below


def _namespaces(pid: int) -> set[int]:
    inodes = set()
    for kind in NAMESPACES:
        with contextlib.suppress(OSError):
            inodes.add(Path(f"/proc/{pid}/ns/{kind}").stat().st_ino)
    return inodes


def _left(traces: Traces, base: Path, run_id: str, handle: Path) -> dict[str, int]:
    """Return what is left of a run, counted by kind; nothing where all is gone."""
    counts = {
        "processes": sum(1 for _ in _living(traces)),
        "namespaces": len(traces.namespaces & _held_namespaces()),
        "mounts": Path("/proc/self/mountinfo").read_text().count(str(base)),
        "sockets with a path": Path("/proc/net/unix").read_text().count(str(base)),
        "files of the run's user": sum(1 for _ in _files_of(UID)) if os.getuid() == 0 else 0,
        "temporary files": sum(1 for _ in Path(tempfile.gettempdir()).iterdir()),
        "System V objects": sum(_system_v(kind) for kind in ("shm", "sem", "msg")),
        "control groups": sum(1 for _ in Path("/sys/fs/cgroup").glob(f"*/kakeya-{run_id}-*")),
        "locks": int(RunFolder(handle).taken()),
    }
    return {kind: count for kind, count in counts.items() if count}


def _living(traces: Traces) -> Iterator[psutil.Process]:
    for process in traces.processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _held_namespaces() -> set[int]:
    """Return every namespace that a process of this machine is in, or holds open."""
    there: set[int] = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            there |= _namespaces(int(folder.name))
            with contextlib.suppress(OSError):
                links = [str(link.readlink()) for link in (folder / "fd").iterdir()]
                there |= {int(link.partition("[")[2][:-1]) for link in links if link[:5] in {"net:[", "mnt:["}}
    return there


def _files_of(uid: int) -> Iterator[str]:
    """Yield what a user owns in the folders that everybody may write to."""
    for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run"):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            yield from (entry.path for entry in entries if entry.stat(follow_symlinks=False).st_uid == uid)


def _system_v(kind: str) -> int:
    lines = Path("/proc/sysvipc", kind).read_text().splitlines()
    column = lines[0].split().index("uid")
    return sum(line.split()[column] == str(UID) for line in lines[1:])


def _open_here() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _spec() -> JobSpec:
    argv = (sys.executable, "-I", "-S", "-c", PROGRAM)
    uid = UID if os.getuid() == 0 else None
    return JobSpec(
        id=new_id(int(SystemClock().now().timestamp() * 1000), os.urandom(10)), request_digest="0" * 64, preset="kills",
        preset_digest="0" * 64, policy_digest="0" * 64, params={}, profile="smoke", code="host", trust_class="host",
        commands=(Command(name="program", argv=argv),), environment=(), limits=LIMITS,
        sandbox=SandboxSpec(mode="required", uid=uid, network=("data.invalid",)), outputs=(), gate_profile="smoke",
    )  # fmt: skip


@contextlib.contextmanager
def _temporary(folder: Path) -> Iterator[None]:
    """Have temporary files made in a folder of this study's own, so that what is left there is a run's."""
    folder.mkdir()
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return by victim how many kills there were, how the runs ended, and of how many something was left."""
    lines = []
    for victim in VICTIMS:
        cases_of = [entry for entry in entries if entry["case"].rpartition(" ")[0] == victim]
        kills = [kill for row in rows_of(cases_of) for kill in row["kills"]]
        if kills:
            endings = sorted({kill["ending"] for kill in kills})
            counts = ", ".join(f"{sum(kill['ending'] == ending for kill in kills)} {ending}" for ending in endings)
            left = sum(bool(kill["left"]) for kill in kills)
            lines.append(f"{victim}: {len(kills)} kills, something left after {left}; endings: {counts}")
    return lines


STUDY = Study(
    "wall-kills",
    "Is anything left of a run by names when its supervisor, and its proxy with it, is killed at a drawn moment?",
    cases,
    run,
    "ten minutes",
    summary,
)
