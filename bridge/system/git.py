"""The only door to git: its own commands, bounded in time and output, never prompting.

Every call gets a session of its own, so that a limit ends helpers too. No GIT_* variable of ours reaches it unless
it is about a transport. Knows nothing about refs, buses or requests.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import selectors
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Final, Protocol

from bridge.errors import GitError, InfrastructureError
from bridge.limits import GIT_LOCAL_WALL_S, MIB
from bridge.system.clock import SystemClock
from bridge.system.process import start_piped

GIT_LEAST: Final = (2, 36)
GIT_NEEDED: Final = "git 2.36 or newer"
OUTPUT_MAX_BYTES: Final = 64 * MIB
STDERR_MAX_BYTES: Final = 64 * 1024
_REAP_S: Final = 5.0
_DRAIN_S: Final = 0.5  # how long a helper left behind (a shared ssh connection) may hold the pipes open
_POLL_S: Final = 0.1
_STARTED: Final[set[int]] = set()  # sessions that have not ended
_CLOCK: Final = SystemClock()
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")
# What the environment may say about a transport; every other GIT_* variable of ours is taken away.
_TRANSPORT = re.compile(r"GIT_(SSH(_COMMAND|_VARIANT)?|ASKPASS|SSL_.*|PROXY_SSL_.*|HTTP_.*|ALLOW_PROTOCOL)")
_CONFIGURATION = re.compile(r"GIT_(CONFIG.*|ATTR.*)")
_FILE_BOUND = re.compile(r"signal 25|signal 31|File size limit|File too large", re.IGNORECASE)
_NOISE = (
    "hint:",
    "remote: Counting",
    "remote: Compressing",
    "remote: Enumerating",
    "remote: Total",
    "Enumerating objects",
    "Counting objects",
    "Delta compression",
    "Compressing objects",
    "Writing objects",
    "Receiving objects",
    "Unpacking objects",
    "Resolving deltas",
    # what a fetch brought, by name
    "From ",
    "* ",
    "Total ",
    "Please make sure you have the correct access rights",
    "and the repository exists.",
    # what git adds to "Unable to create '...lock': File exists."
    "Another git process seems to be running",
    "an editor opened by 'git commit'",
    "are terminated then try again.",
    "may have crashed in this repository earlier",
    "remove the file manually to continue.",
)


class Process(Protocol):
    """A running git."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code."""
        ...


@dataclass(frozen=True)
class Finished:
    """One finished git call; output is cut at its bounds."""

    exit_code: int
    stdout: bytes
    stderr: str
    timed_out: bool
    too_large: bool

    @property
    def hit_file_bound(self) -> bool:
        """Whether git ended because a file that it wrote became as large as it may."""
        return self.exit_code in (153, -25) or _FILE_BOUND.search(self.stderr) is not None


def run_in_work_tree(
    folder: Path, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run git in the user's own repository with the user's own configuration, hooks and file monitor off.

    Raises:
        GitError: git cannot be started.
    """
    off = ["-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "maintenance.auto=false"]
    variables = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", **(environment or {})}
    process = start(["git", *off, *arguments], variables, cwd=folder, keep_config=True)
    return collect(process, GIT_LOCAL_WALL_S)


def last_words(stderr: str) -> str:
    """Return what git said, without progress, hints and user information, on one line of bounded length."""
    lines = [line.strip() for line in _USER_INFO.sub("", stderr).replace("\r", "\n").splitlines()]
    words = [line for line in lines if line and not line.startswith(_NOISE)]
    text = "; ".join(words[-4:])
    return "".join(char if char.isprintable() else "?" for char in text)[-600:] or "no message"


def without_user_info(url: str) -> str:
    """Return a URL without user name and password."""
    return _USER_INFO.sub("", url)


def start(
    argv: list[str], environment: Mapping[str, str], *, cwd: Path, stdin: bool = False, keep_config: bool = False
) -> Process:
    """Start git in a session of its own, without the GIT_* variables that the caller did not name; it speaks English.

    Args:
        argv: git and its arguments.
        environment: variables beside ours.
        cwd: its directory; ours where that is gone.
        stdin: whether its input is a pipe.
        keep_config: whether variables that configure git are passed on, as in the user's own repository.

    Raises:
        GitError: git cannot be started.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_")
        or _TRANSPORT.fullmatch(name) is not None
        or (keep_config and _CONFIGURATION.fullmatch(name) is not None)
    }
    _end_all_with_us()
    try:
        process = start_piped(
            argv,
            env={**inherited, "LANGUAGE": "C", "LC_ALL": "C", **environment},
            cwd=cwd if os.access(cwd, os.X_OK) else None,
            stdin=stdin,
        )
    except InfrastructureError as error:
        raise GitError("git is not installed, or not on PATH", remedy=f"install {GIT_NEEDED}") from error
    _STARTED.add(process.pid)
    return process


@cache
def _end_all_with_us() -> None:
    """Let no call outlive this process, whose threads it waits for: nobody would bound it any more."""
    atexit.register(_end_all)


def _end_all() -> None:
    for pid in tuple(_STARTED):
        kill(pid)


class StopSignal:
    """Whether this program was asked to end, and when its calls first saw that.

    Args:
        is_asked: returns whether it was; from then on that stands.
    """

    def __init__(self, is_asked: Callable[[], bool]) -> None:
        self._is_asked = is_asked
        self._since_s: float | None = None

    def since_s(self) -> float | None:
        """Return the steady time at which it was first seen, None where it was not asked."""
        if self._since_s is None and self._is_asked():
            self._since_s = _CLOCK.steady_s()
        return self._since_s


@dataclass(frozen=True)
class CallStop:
    """When a call is given up because the program is asked to end: so many seconds after that was first seen."""

    signal: StopSignal
    grace_s: float

    def due_s(self) -> float | None:
        """Return the steady time at which the call is given up, None while nobody asks for it."""
        since_s = self.signal.since_s()
        return None if since_s is None else since_s + self.grace_s

    def is_due(self) -> bool:
        """Return whether a call that began now would be given up at once."""
        due_s = self.due_s()
        return due_s is not None and _CLOCK.steady_s() >= due_s


def collect(
    process: Process, timeout_s: float, stop: CallStop | None = None, *, quiet_s: float | None = None
) -> Finished:
    """Read both streams until the end or a limit; of errors, the last are kept.

    Args:
        process: git.
        timeout_s: wall limit.
        stop: when the limit comes near.
        quiet_s: the limit also comes after so long without a byte of output; None: however long that lasts.
    """
    assert process.stdout is not None  # noqa: S101 - `start` asks for both
    assert process.stderr is not None  # noqa: S101
    outputs: dict[IO[bytes], bytearray] = {process.stdout: bytearray(), process.stderr: bytearray()}
    heard_s = _CLOCK.steady_s()
    deadline = until_s = heard_s + timeout_s
    ended_s: float | None = None
    timed_out = too_large = whole = False
    try:
        with selectors.DefaultSelector() as selector:
            for stream in outputs:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map() and not timed_out and not too_large:
                now = _CLOCK.steady_s()
                if stop is not None and (due_s := stop.due_s()) is not None:
                    deadline = min(deadline, due_s)
                if ended_s is None and process.poll() is not None:
                    ended_s = now
                if ended_s is not None and now > ended_s + _DRAIN_S:
                    break
                for key, _ in selector.select(max(0.0, min(_POLL_S, until_s - now))):
                    heard_s = now
                    stream = process.stdout if key.fileobj is process.stdout else process.stderr
                    data = os.read(stream.fileno(), 65536)
                    if not data:
                        selector.unregister(stream)
                    elif stream is process.stderr:
                        outputs[stream] += data
                        del outputs[stream][:-STDERR_MAX_BYTES]
                    elif len(outputs[stream]) < OUTPUT_MAX_BYTES:
                        outputs[stream] += data
                    else:
                        too_large = True
                until_s = deadline if quiet_s is None else min(deadline, heard_s + quiet_s)
                timed_out = bool(selector.get_map()) and ended_s is None and now >= until_s
            whole = not (timed_out or too_large)
    finally:
        code = end(process, graceful=whole)
    stdout, stderr = (bytes(outputs[stream]) for stream in (process.stdout, process.stderr))
    return Finished(code, stdout, stderr.decode("utf-8", "replace"), timed_out, too_large)


def end(process: Process, *, graceful: bool = True) -> int:
    """Close the pipes and reap; kill the whole session unless both streams ended by themselves."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    if not graceful:
        kill(process.pid)
    code = process.poll()
    if code is None:
        watchdog = threading.Timer(_REAP_S, kill, (process.pid,))
        watchdog.start()
        try:
            code = process.wait()
        finally:
            watchdog.cancel()
    _STARTED.discard(process.pid)
    return code


def kill(pid: int) -> None:
    """Kill a session that `start` began, helpers included."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
