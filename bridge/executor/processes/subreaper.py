"""Run one command as the subreaper of every process it starts, and kill them all at its end.

Run as a script by the executor (`python -I -S subreaper.py CONTROL STATUS`), between the runner and the command, so
that it can be the subreaper of everything the command starts: a child that forks twice and begins its own session still
ends up here. Knows nothing about jobs, limits in time, logs or sandboxes. Standard library only: it starts without site
packages.

Control, read from a pipe: one JSON line (a `Plan` of `bridge.executor.command.supervise`), then `term` or `kill`
lines. The end of the pipe means that the runner has died, and everything is killed. Status, written to a pipe, JSON
lines: `spawned` {pid}, `failed` {message}, `exited` {code, signal}, `clean` {killed, left, cpu_s, peak_rss_bytes}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37
PR_SET_NO_NEW_PRIVS = 38
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
CLEAN_S = 10.0  # the longest time to kill a process tree that goes on forking


def prctl(option: int, value: int) -> None:
    """Call prctl on Linux; elsewhere there is none, and the runner's scan has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def is_subreaper() -> bool:
    """Return whether orphans below this process come to it; on Linux alone."""
    answer = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return answer.value == 1


def descendants(ancestor: int) -> list[tuple[int, int]]:
    """Return (pid, depth) of all living descendants, parents first, from one look at /proc."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc") if sys.platform == "linux" else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    processes: list[tuple[int, int]] = []
    level, depth = [ancestor], 0
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        processes.extend((child, depth) for child in level)
        depth += 1
    return processes


def stage(cover: list[str], places: dict[str, str]) -> None:
    """Cover folders with empty ones, and mount paths below them where any user reaches them; needs root.

    In a mount namespace of our own. A path may be mounted at its own place below a folder that was closed until then.

    Raises:
        OSError: the kernel does not let us.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    check(libc.unshare(CLONE_NEWNS), "own mount namespace")
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in places}  # a cover hides them from their names
    for folder in cover:
        options = MS_NOSUID | MS_NODEV
        check(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", options, b"mode=755,size=1m"), f"tmpfs on {folder}")
    for path, descriptor in opened.items():
        place = Path(places[path])
        place.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            place.mkdir(exist_ok=True)
        else:
            place.touch()
        source = f"/proc/self/fd/{descriptor}".encode()
        check(libc.mount(source, os.fsencode(place), None, MS_BIND, None), f"bind of {path}")
        os.close(descriptor)


def join(group: str) -> bool:
    """Enter a control group; return whether it bounds the threads in it and nobody but root can leave it."""
    # Where we may make a group but not join it, the sampled bounds and the scan have to do.
    with contextlib.suppress(OSError):
        Path(group, "cgroup.procs").write_text("0")
        return os.geteuid() == 0 and Path(group, "pids.max").read_text().strip() != "max"
    return False


def send(pid: int, number: int) -> bool:
    """Send a signal; return False when the process is gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class Subreaper:
    """Starts one command, follows control lines and kills every descendant at the end."""

    def __init__(self, control: int, status: int) -> None:
        self._control = control
        self._status = status
        self._buffer = b""
        self._plan: dict[str, Any] = {}
        self._leader = 0
        self._ended = False
        self._runner_alive = True
        self._killed: set[int] = set()

    def run(self) -> None:
        """Wait for the plan, start the command, follow orders until its process tree is gone."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while not self._plan:
            if not self._orders():
                return
        if self._spawn():
            while not self._ended and self._runner_alive:
                ready, _, _ = select.select([self._control, wake_read], [], [], 1.0)
                if wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                self._reap()
                if self._control in ready and not self._ended:
                    self._runner_alive = self._orders()
        self._clean()
        if not self._runner_alive:
            # The runner that made the control groups is dead and will not remove them.
            deadline = time.monotonic() + 1.0
            groups = list(self._plan["cgroups"])
            while groups and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    Path(groups[-1]).rmdir()
                    groups.pop()
                time.sleep(0.002)

    def _orders(self) -> bool:
        """Read and follow control lines; False at the end of the pipe."""
        # The pipe's mode belongs to whoever else holds it, and may be non-blocking.
        select.select([self._control], [], [])
        try:
            block = os.read(self._control, 1 << 20)
        except BlockingIOError:
            return True
        if not block:
            return False
        *lines, self._buffer = (self._buffer + block).split(b"\n")
        for line in lines:
            if line == b"term":
                self._terminate()
            elif line == b"kill":
                self._kill()
            elif line:
                self._plan = json.loads(line)
        return True

    def _terminate(self) -> None:
        """Ask everybody below the wrapping programs to end."""
        if sys.platform != "linux":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, signal.SIGTERM)
            return
        for pid, depth in descendants(os.getpid()):
            if depth >= self._plan["wrappers"]:
                send(pid, signal.SIGTERM)

    def _kill(self) -> None:
        """Kill all descendants once, and count those that are not part of the wrapping."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader, signal.SIGKILL)
        tree = descendants(os.getpid())
        # Stopped first, so that a parent cannot fork again while its siblings are being killed.
        for pid, _depth in tree:
            send(pid, signal.SIGSTOP)
        for pid, depth in tree:
            if send(pid, signal.SIGKILL) and depth >= self._plan.get("wrappers", 0) - 1:
                self._killed.add(pid)

    def _spawn(self) -> bool:
        """Start the command; False, and said so, when it cannot be started."""
        read_end, write_end = os.pipe()
        self._leader = os.fork()
        if self._leader == 0:
            os.close(read_end)
            self._become(write_end)
        os.close(write_end)
        for descriptor in self._plan["pass_fds"]:
            os.close(descriptor)
        message = os.read(read_end, 4096)
        os.close(read_end)
        if message:
            self._say(event="failed", message=message.decode("utf-8", "replace"))
            return False
        self._say(event="spawned", pid=self._leader)
        return True

    def _become(self, write_end: int) -> None:
        """Turn this forked process into the command; never returns."""
        plan = self._plan
        try:
            prctl(PR_SET_DUMPABLE, 1)  # first: our own /proc files are not ours to write while it is 0
            for descriptor in (self._control, self._status):
                os.close(descriptor)
            counted = [join(path) for path in plan["cgroups"]]
            os.setsid()
            for number in (*IGNORED, signal.SIGCHLD, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.umask(0o022)
            os.nice(plan["nice"])
            with contextlib.suppress(OSError):
                Path("/proc/self/oom_score_adj").write_text("500")
            for name, bound in plan["rlimits"].items():
                # A user's threads include those of its other runs; a group counts the threads of this run alone.
                which = None if name == "RLIMIT_NPROC" and any(counted) else getattr(resource, name, None)
                if which is not None:
                    hard, most = resource.getrlimit(which)[1], bound
                    most += name == "RLIMIT_CPU"  # where both are one, the kernel kills, and no SIGXCPU says why
                    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                    resource.setrlimit(which, (min(bound, most), most))
            if plan["stage"]:
                stage(plan["cover"], plan["stage"])
            prctl(PR_SET_NO_NEW_PRIVS, 1)
            os.chdir(plan["cwd"])
            for descriptor in plan["pass_fds"]:
                os.set_inheritable(descriptor, True)
            os.execve(plan["argv"][0], plan["argv"], plan["env"])  # noqa: S606 - that is the point
        except BaseException as error:  # noqa: BLE001 - a forked copy must end here whatever happens
            os.write(write_end, f"{type(error).__name__}: {error}".encode()[:4000])
        os._exit(127)

    def _reap(self) -> bool:
        """Collect every dead child; False when there are no children at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._leader:
                self._ended = True
                code = os.waitstatus_to_exitcode(status)
                self._say(event="exited", code=code if code >= 0 else None, signal=-code if code < 0 else None)

    def _clean(self) -> None:
        """Kill whoever is left until nobody is, then report."""
        deadline = time.monotonic() + CLEAN_S
        while self._reap() and time.monotonic() < deadline:
            self._kill()
            time.sleep(0.002)
        left = len(descendants(os.getpid()))
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        scale = 1 if sys.platform == "darwin" else 1024
        self._say(
            event="clean",
            killed=len(self._killed),
            left=left,
            cpu_s=used.ru_utime + used.ru_stime,
            peak_rss_bytes=used.ru_maxrss * scale,
        )

    def _say(self, **fields: object) -> None:
        """Report one event; a runner that has gone hears nothing."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._status, json.dumps(fields).encode() + b"\n")


def main() -> None:
    """Become the subreaper, shield ourselves from the command, serve."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_DUMPABLE, 0)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    control, status = int(sys.argv[1]), int(sys.argv[2])
    for descriptor in (control, status):
        os.set_inheritable(descriptor, False)
    Subreaper(control, status).run()


if __name__ == "__main__":
    main()
