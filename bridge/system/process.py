"""The only door to other processes: run one and bound it, start one and let go of it, start one and keep hold of it.

Knows nothing about jobs, sandboxes or git. Nothing here uses a shell, and nothing here waits without a limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn

from bridge.errors import InfrastructureError
from bridge.system.clock import SystemClock
from bridge.system.streams import exchange

OUTPUT_MAX_BYTES: Final = 4 * 1024 * 1024
_CLOCK: Final = SystemClock()
_DETACH_CODE: Final = (
    "import os,sys\n"
    "fd=int(sys.argv[1])\n"
    "os.set_inheritable(fd,False)\n"
    "pid=os.posix_spawnp(sys.argv[2],sys.argv[2:],os.environ)\n"
    "os.write(fd,str(pid).encode())\n"
)


@dataclass(frozen=True)
class Completed:
    """One finished process.

    Attributes:
        exit_code: as the process gave it; -n when signal n ended it.
        stdout, stderr: the first bytes of each, up to the bound.
        timed_out: whether the wall limit ended it; everything in its group was killed then.
        truncated: whether output beyond the bound was thrown away.
    """

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out

    def describe(self) -> str:
        """Return command, ending and the end of stderr in one text for an error message."""
        ending = "ran past its time limit" if self.timed_out else f"exit code {self.exit_code}"
        tail = self.stderr[-2000:].decode("utf-8", "replace").strip()
        return f"{' '.join(self.argv)}: {ending}" + (f"\n{tail}" if tail else "")


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    timeout_s: float,
    input: bytes | None = None,  # noqa: A002 - the name the standard library taught everybody
    max_output_bytes: int = OUTPUT_MAX_BYTES,
) -> Completed:
    """Run a program in a session of its own, bounded in time and output; kill its whole group at the limit.

    Args:
        argv: the program and its arguments; no shell sees them.
        env: its whole environment, or None for ours.
        cwd: its directory, or None for ours.
        timeout_s: wall limit; at the limit the group gets KILL.
        input: bytes for its stdin; None gives it /dev/null.
        max_output_bytes: how much of each stream is kept; the rest is read and thrown away.

    Raises:
        InfrastructureError: the program cannot be started.
    """
    process = start_piped(argv, env=env, cwd=cwd, stdin=input is not None)
    with process:
        try:
            return _communicate(process, tuple(argv), timeout_s, input, max_output_bytes)
        finally:
            _finish(process)


def start_piped(
    argv: Sequence[str], *, env: Mapping[str, str] | None, cwd: Path | str | None, stdin: bool
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own with both streams on pipes, for a caller that reads and ends it.

    Args:
        argv: the program and its arguments; no shell sees them.
        env: its whole environment, or None for ours.
        cwd: its directory, or None for ours.
        stdin: whether its input is a pipe as well; otherwise it is empty.

    Raises:
        InfrastructureError: it cannot be started.
    """
    try:
        return subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise _cannot_start(argv, error) from error


def _cannot_start(argv: Sequence[str], error: OSError) -> InfrastructureError:
    return InfrastructureError(
        f"cannot start {argv[0]!r}: {error.strerror or error}", remedy="check that the program exists and may be run"
    )


def _communicate(
    process: subprocess.Popen[bytes], argv: tuple[str, ...], timeout_s: float, data: bytes | None, bound: int
) -> Completed:
    """Feed stdin and collect both streams until the end, the limit, or a second after the program's own end."""
    assert process.stdout is not None  # noqa: S101 - both were asked for above
    assert process.stderr is not None  # noqa: S101
    deadline = _CLOCK.steady_s() + timeout_s
    drained = exchange(
        process.stdin,
        (process.stdout, process.stderr),
        data,
        has_ended=partial(_has_ended, process),
        deadline_s=deadline,
        max_bytes=bound,
    )
    timed_out = not _wait(process, max(0.0, deadline - _CLOCK.steady_s())) or drained.timed_out
    stdout, stderr = drained.outputs
    return Completed(argv, _finish(process), stdout, stderr, timed_out=timed_out, truncated=drained.truncated)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended, without collecting it: until then the kernel gives its id to no other process or group."""
    if process.returncode is not None:
        return True
    waitid = getattr(os, "waitid", None)
    if waitid is None:  # older Pythons on macOS
        return process.poll() is not None
    return waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait for the end; False when the time was up first."""
    deadline = _CLOCK.steady_s() + timeout_s
    pause_s = 0.0005
    while not _has_ended(process):
        if _CLOCK.steady_s() >= deadline:
            return False
        _CLOCK.sleep(min(pause_s, deadline - _CLOCK.steady_s()))
        pause_s = min(2 * pause_s, 0.02)
    return True


def _finish(process: subprocess.Popen[bytes]) -> int:
    """Kill every process of its group, collect it, return its exit code; a second call changes nothing."""
    if process.returncode is None:
        kill_group(process.pid)
    return process.wait()


def limit_memory(pid: int, max_bytes: int) -> None:
    """Bound the address space of a process that was just started; a lower bound in force stays.

    Linux alone lets one process bound another. Elsewhere nothing happens, and a caller needs a second bound.
    """
    import resource

    if not hasattr(resource, "prlimit"):
        return
    try:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        least = min(limit for limit in (soft, hard, max_bytes) if limit != resource.RLIM_INFINITY)
        resource.prlimit(pid, resource.RLIMIT_AS, (least, least))
    except ProcessLookupError:  # it has ended: its caller sees that
        return


def kill_group(pgid: int) -> bool:
    """Send KILL to a process group; False when it is gone already or not ours."""
    try:
        os.killpg(pgid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def spawn_detached(argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a program that outlives us: own session, no terminal, not our child; return its process id.

    Args:
        argv: the program and its arguments.
        log: file, mode 0600, that both its streams are appended to.
        env: its whole environment, or None for ours.

    Raises:
        InfrastructureError: the program cannot be started; the message shows the end of the log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    read_end, write_end = os.pipe()
    log_fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # The middle process ends at once, so the program is never our child and never a zombie of ours.
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _DETACH_CODE, str(write_end), *argv],
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            pass_fds=(write_end,),
            start_new_session=True,
        ) as middle:
            os.close(write_end)
            write_end = -1
            answer = os.read(read_end, 32)
            middle.wait()
    finally:
        for descriptor in (read_end, write_end, log_fd):
            if descriptor >= 0:
                os.close(descriptor)
    if not answer:
        tail = log.read_bytes()[-500:].decode("utf-8", "replace").strip()
        raise InfrastructureError(f"cannot start {argv[0]!r} in the background: {tail}", remedy=f"see {log}")
    return int(answer)


def become(argv: Sequence[str], *, env: Mapping[str, str], wall_s: int) -> NoReturn:
    """Become another program, keeping stdin, stdout and stderr; the kernel ends it at the wall limit.

    Raises:
        InfrastructureError: the program cannot be started.
    """
    signal.alarm(wall_s)
    try:
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - argv only, and this is the door
    except OSError as error:
        signal.alarm(0)
        raise _cannot_start(argv, error) from error


class Child:
    """A process we hold on to: started in its own session with exactly the descriptors it was given.

    It inherits stdin from /dev/null and writes stdout and stderr to one descriptor.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | str,
        output_fd: int,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start it.

        Raises:
            InfrastructureError: the program cannot be started.
        """
        try:
            self._process = subprocess.Popen(
                list(argv),
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output_fd,
                stderr=output_fd,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        except OSError as error:
            raise _cannot_start(argv, error) from error

    @property
    def pid(self) -> int:
        """Its process id, also its group and session id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return its exit code (-n for signal n), or None while it lives; its group ends with it."""
        return _finish(self._process) if _has_ended(self._process) else None

    def wait(self, timeout_s: float) -> int | None:
        """Wait for its end, which is its group's; None when the time was up first."""
        return _finish(self._process) if _wait(self._process, timeout_s) else None

    def kill(self) -> None:
        """Send KILL to its whole group, wait for it."""
        _finish(self._process)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
