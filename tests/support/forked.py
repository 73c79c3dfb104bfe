"""Commands in processes of their own that part from one which has imported everything: a start costs no imports.

Started like `subprocess.Popen`. What a command does between its first line and its imports is tested with real starts.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

PRELOAD = ("tests.support.preloaded",)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(PRELOAD))


class Forked:
    """A process that runs one function to its exit code.

    Args:
        call: a function of a module, which returns its exit code.
        arguments: what it is called with.
        cwd: the folder it starts in.
        env: its whole environment.
        stdout, stderr: files that its streams are written to; None leaves them as they are.
    """

    def __init__(
        self,
        call: Callable[..., int],
        arguments: Sequence[object] = (),
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: Path | None = None,
        stderr: Path | None = None,
    ) -> None:
        streams = tuple(None if path is None else str(path) for path in (stdout, stderr))
        environment = dict(os.environ if env is None else env)
        self._process = _CONTEXT.Process(
            target=_begin, args=(call, arguments, str(cwd or Path.cwd()), environment, streams)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process.name), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may end of itself between the two
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    call: Callable[..., int],
    arguments: Sequence[object] = (),
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """Run a function in a process of its own to its end; return what it wrote and its exit code."""
    with tempfile.TemporaryDirectory(prefix="kakeya-forked-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = Forked(call, arguments, cwd=cwd, env=env, stdout=out, stderr=err)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(list(map(str, arguments)), code, out.read_text(), err.read_text())


def command(module: str, words: Sequence[str]) -> int:
    """Run the `main` of a program's module with these words."""
    sys.argv = [module, *words]
    return int(import_module(module).main(list(words)))


def _begin(
    call: Callable[..., int],
    arguments: Sequence[object],
    cwd: str,
    environment: Mapping[str, str],
    streams: tuple[str | None, str | None],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    for number, path in enumerate(streams, 1):
        if path is not None:
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(opened, number)
            os.close(opened)
    sys.exit(call(*arguments))
