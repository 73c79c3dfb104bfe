"""How soon is a run over that takes more than its default bounds allow, and what is left of it?

A hog marks the moment it passes its bound on the sample pipe, which the executor stamps on the run's own clock; what
the executor waited for a processor meanwhile is given beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import psutil

from benchmarks.studies.report import ROOT
from benchmarks.studies.sandbox.escapes.situations import new_folder
from benchmarks.studies.sandbox.jobs import carry_out, handle_of
from benchmarks.studies.study import Entry, Row, Study
from bridge import limits
from bridge.executor.holder.folder import RunFolder
from bridge.executor.interface import Execution, Hooks
from bridge.executor.processes.subreaper import stage
from bridge.executor.trial import make_directory
from bridge.records.jobspec import Command, JobSpec, Limits, SandboxSpec

BOUNDS = Limits(
    wall_s=120.0,
    inactivity_s=120.0,
    grace_s=limits.GRACE_S,
    memory_bytes=limits.MEMORY_DEFAULT_BYTES,
    processes=limits.PROCESSES_DEFAULT_COUNT,
    open_files=limits.OPEN_FILES_DEFAULT_COUNT,
    output_bytes=limits.OUTPUT_DEFAULT_BYTES,
    output_files=limits.OUTPUT_FILES_DEFAULT_COUNT,
    log_bytes=limits.LOG_MAX_BYTES,
)
UID: Final = 54341
_LOOK_S: Final = 0.02
HEAD = """
import ctypes, json, mmap, os, sys, threading, time
counter = mmap.mmap(-1, 8)
def mark(name="over"):
    line = json.dumps({"event": "start", "sample": name}) + "\\n"
    os.write(int(os.environ["KAKEYA_SAMPLE_PIPE"]), line.encode())
def more(step=1):
    now = int.from_bytes(counter[:8], "little") + step
    counter[:8] = now.to_bytes(8, "little")
    return now
"""
HOGS: dict[str, str] = {
    "fork bomb": f"""
while True:
    try:
        # In a process namespace of its own the number of a process counts them; elsewhere the counter may lag behind.
        if os.fork() == 0 and max(more(), os.getpid() if os.getppid() < 1000 else 0) >= {BOUNDS.processes}: mark()
    except OSError: pass
""",
    "thread bomb": """
def sleep(): time.sleep(600)
threading.stack_size(65536)
try:
    while True:
        threading.Thread(target=sleep, daemon=True).start()
        more()
except RuntimeError: mark()
time.sleep(5)
""",
    "memory": f"""
blocks, marked = [], False
while True:
    blocks.append(b"x" * (64 << 20))
    if more(64 << 20) > {BOUNDS.memory_bytes} and not marked: marked = not mark()
""",
    "disk": f"""
marked = False
while True:
    with open(f"{{more()}}", "wb") as file: file.write(b"x" * (4 << 20))
    if int.from_bytes(counter[:8], "little") * (4 << 20) > {BOUNDS.output_bytes} and not marked: marked = not mark()
""",
    "inodes": f"""
# Eight at once, each in folders of its own, or other programs keep it from its bound for minutes.
made = memoryview(mmap.mmap(-1, 64)).cast("Q")
which, marked = next((number for number in range(1, 8) if os.fork() == 0), 0), False
while True:
    if made[which] % 5000 == 0:
        os.mkdir(f"folder{{which}}")
        os.chdir(f"folder{{which}}")
    os.mknod(str(made[which]))
    made[which] += 1
    if not marked and made[which] % 100 == 0 and sum(made) > {BOUNDS.output_files}: marked = not mark()
""",
    "log flood": """
block = (b"x" * 199 + b"\\n") * 5000
for _ in range(1000): os.write(1, block)
mark()
""",
    "left in shared memory": """
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(3):
    libc.shmget(0, 1 << 20, 0o1000 | 0o600)
    libc.semget(0, 1, 0o1000 | 0o600)
    libc.msgget(0, 0o1000 | 0o600)
with open(f"/dev/shm/{TOKEN}", "wb") as file: file.write(b"x" * (8 << 20))
mark()
""",
}
CGROUPS = ("with control groups", "without control groups")
CONFINED = ("required", "off")


def cases() -> list[str]:
    """Return the cases: hog, control groups, sandbox."""
    return [f"{hog}, {cgroups}, sandbox {mode}" for hog in HOGS for cgroups in CGROUPS for mode in CONFINED]


class Waits:
    """What the run's supervisor waits for a processor while a block lasts.

    Args:
        handle: the run's folder.
    """

    def __init__(self, handle: Path) -> None:
        self._folder = RunFolder(handle)
        self._began_s = 0.0
        self._path: Path | None = None
        self._readings: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Waits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            with contextlib.suppress(OSError):
                if self._path is not None:
                    waited_ns = int(self._path.read_text().split()[1])
                    self._readings.append((time.monotonic(), waited_ns / 1e9))

    def started(self, pid: int, _started: float, _marker: str) -> None:
        """Note who supervises, and when the run's clock began: it has written that down, however late we hear of it."""
        began = datetime.fromisoformat(self._folder.facts().began).timestamp()
        self._began_s, self._path = time.monotonic() - (time.time() - began), Path(f"/proc/{pid}/schedstat")

    def between(self, first_s: float, last_s: float) -> float:
        """Return what it waited between two times of the run's clock."""
        first, last = (
            [waited for at, waited in self._readings if at <= self._began_s + moment][-1:]
            for moment in (first_s, last_s)
        )
        return last[0] - first[0] if first and last else 0.0


def run_here(hog: str, mode: str) -> Row:
    """Run a hog once and return what it took to end it."""
    token = f"hog-{secrets.token_hex(8)}"
    spec = _spec(HEAD + f"TOKEN = {token!r}\n" + HOGS[hog], mode)
    with new_folder() as folder, _neighbour() as neighbour, Waits(handle_of(folder / "run")) as waits:
        hooks = Hooks(on_log=lambda _: None, on_started=waits.started, should_stop=lambda: None)
        began_s, spent = time.monotonic(), _cpu_s(neighbour)
        execution = carry_out(spec, make_directory(folder / "run"), hooks=hooks)
        wall_s = time.monotonic() - began_s
        share = (_cpu_s(neighbour) - spent) / wall_s
    return _row(execution, waits) | {
        "wall_s": round(wall_s, 2),
        "neighbour_processors": round(share, 2),
        "load": round(os.getloadavg()[0], 1),
        "left": _left(token),
    }


def _row(execution: Execution, waits: Waits) -> Row:
    over = next((mark.t_s for mark in execution.sample_marks if mark.sample == "over"), None)
    command = execution.commands[-1] if execution.commands else None
    took = None if over is None or command is None else command.ended_s - over
    waited = None if took is None else waits.between(over, command.ended_s)
    return {
        "ending": execution.ending,
        "limits": [f"{hit.limit} {hit.action}: {hit.observed:g} of {hit.bound:g}" for hit in execution.limits_hit],
        "sandbox": execution.sandbox.kind,
        "seconds_to_end": None if took is None else round(took, 3),
        "of_them_waiting": None if waited is None else round(waited, 3),
        "log_bytes_kept": len(execution.log),
        "survivors": sum(command.survivors for command in execution.commands),
    }


def _spec(program: str, mode: str) -> JobSpec:
    argv = (sys.executable, "-I", "-S", "-c", program)
    uid = UID if os.getuid() == 0 else None
    return JobSpec(
        id="01k9x3" + "2" * 20, request_digest="0" * 64, preset="hogs", preset_digest="0" * 64,
        policy_digest="0" * 64, params={}, profile="smoke", code="host", trust_class="host",
        commands=(Command(name="hog", argv=argv),), environment=(), limits=BOUNDS,
        sandbox=SandboxSpec(mode=mode, uid=uid), outputs=(), gate_profile="smoke",
    )  # fmt: skip


@contextlib.contextmanager
def _neighbour():
    """Run a process with one thread that wants a whole processor."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]) as process:
        try:
            yield process
        finally:
            process.kill()


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def _left(token: str) -> list[str]:
    """Return what is still there of a hog: processes, files in shared memory, System V objects; objects are removed."""
    remains = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            remains += [f"process {process.pid}"] if any(token in word for word in process.cmdline()) else []
    shared = Path("/dev/shm", token)
    if shared.exists():
        remains.append(f"/dev/shm: {shared.stat().st_size} bytes")
        shared.unlink()
    for kind, option in (("shm", "-m"), ("sem", "-s"), ("msg", "-q")):
        lines = Path("/proc/sysvipc", kind).read_text().splitlines()[1:]
        mine = [line.split()[1] for line in lines if str(UID) in line.split()]
        remains += [f"System V {kind}: {len(mine)}"] if mine else []
        for number in mine:
            subprocess.run(["ipcrm", option, number], check=False, timeout=10)
    return remains


def run(case: str) -> list[Row]:
    """Run one case.

    Raises:
        RuntimeError: it could not be run.
    """
    hog, cgroups, mode = case.split(", ")
    return [in_own_process("benchmarks.studies.sandbox.hogs", [hog, mode.removeprefix("sandbox ")], cgroups)]


def in_own_process(module: str, words: Sequence[str], cgroups: str) -> Row:
    """Run a module in a process of its own, which has control groups or not; return the row that it prints.

    Raises:
        RuntimeError: it could not be run.
    """

    def cover() -> None:
        if cgroups == CGROUPS[1]:
            stage(["/sys/fs/cgroup"], {})

    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, preexec_fn=cover, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}, {cgroups}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str]) -> None:
    """Run one hog here and print what came of it."""
    print(json.dumps(run_here(*arguments)))


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return the slowest end of each kind of hog, the least share of its neighbour, and what was left behind."""
    slowest: dict[str, float] = {}
    left, shares = [], []
    for entry in entries:
        hog = entry["case"].partition(",")[0]
        for row in entry["rows"]:
            if row["seconds_to_end"] is not None:
                slowest[hog] = max(slowest.get(hog, 0.0), row["seconds_to_end"] - row["of_them_waiting"])
            left += [f"{entry['case']}: {what}" for what in (*row["left"], *["survivors"] * bool(row["survivors"]))]
            shares.append((row["neighbour_processors"], entry["case"]))
    ends = ", ".join(f"{hog} {seconds:.1f} s" for hog, seconds in slowest.items())
    share, case = min(shares)
    neighbour = f"a neighbour with one thread had at least {share:.2f} of a processor ({case})"
    return [ends, neighbour, f"left: {'; '.join(left) or 'nothing'}"]


STUDY = Study(
    "hogs",
    "How soon is a run over that passes a default bound, and what is left of it?",
    cases,
    run,
    "three minutes",
    summary,
)

if __name__ == "__main__":
    main(sys.argv[1:])
