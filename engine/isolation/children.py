"""The engine's one door to child processes: start one, ask it in JSON lines or hear where it serves, end it.

Used where two codes must not share a process. A child that is asked gets a pipe for that and one to answer on, and
writes its output where ours goes. Each ends with us because its standard input does. Knows nothing about what is asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from engine.errors import ChildError

_END_WALL_S = 10.0
_POLL_S = 0.05


class ChildProcess:
    """A running child.

    Args:
        name: for messages.
        script: the file it runs, isolated from user site, environment and current directory.
        arguments: what follows; the number of the descriptor it answers on is appended.
    """

    def __init__(self, name: str, script: Path, arguments: Sequence[str]) -> None:
        self.name = name
        ours, theirs = os.pipe()
        try:
            # Isolated: neither PYTHONPATH nor the folder of the script may put another engine first.
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(script), *arguments, str(theirs)],
                stdin=subprocess.PIPE,
                stdout=sys.stderr.fileno(),
                pass_fds=(theirs,),
            )
        except OSError as error:
            os.close(ours)
            raise ChildError(f"{name}: cannot start {sys.executable}: {error}") from error
        finally:
            os.close(theirs)
        self._answers: IO[bytes] = os.fdopen(ours, "rb")

    def ask(self, verb: str, **values: Any) -> None:
        """Send one ask.

        Raises:
            ChildError: it has ended.
        """
        line = json.dumps({"ask": verb, **values}, separators=(",", ":")).encode() + b"\n"
        stdin = self._process.stdin
        if stdin is None:
            raise ChildError(f"{self.name}: has no standard input")
        try:
            stdin.write(line)
            stdin.flush()
        except OSError as error:
            raise ChildError(f"{self.name}: ended before it was asked to {verb}: {error}") from error

    def answer(self) -> Mapping[str, Any]:
        """Wait for the next answer.

        Raises:
            ChildError: it ended instead, or says that something went wrong.
        """
        line = self._answers.readline()
        if not line:
            raise ChildError(f"{self.name}: the process ended with code {self._process.wait()} instead of answering")
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ChildError(f"{self.name}: answered a {type(value).__name__}, expected an object")
        if "error" in value:
            raise ChildError(f"{self.name}: {value['error']}")
        return value

    def close(self) -> None:
        """End it: close what it reads, then wait; a child that does not end is killed."""
        _end(self._process)
        self._answers.close()


class ServingChild:
    """A module that runs as a program of its own, and writes a line once it can be reached.

    Args:
        name: for messages.
        module: what ``python -m`` runs; nothing of the current directory comes before it.
        arguments: its own.

    Attributes:
        said: the line, without its end.

    Raises:
        ChildError: it could not be started, or ended without one.
    """

    def __init__(self, name: str, module: str, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-P", "-m", module, *arguments]
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise ChildError(f"{name}: cannot start {sys.executable}: {error}") from error
        line = "" if self.process.stdout is None else self.process.stdout.readline()
        if not line:
            self.close()
            raise ChildError(f"{name} ended with code {self.process.returncode} instead of serving")
        self.first_line = line.rstrip("\n")

    def close(self) -> None:
        """End it: its standard input ends; one that does not end is killed."""
        _end(self.process)
        if self.process.stdout is not None:
            self.process.stdout.close()


def run_together(name: str, module: str, each: Sequence[Sequence[str]], limit_s: float) -> list[str]:
    """Run a module once for each list of arguments, all at a time; return what each wrote to its standard output.

    Args:
        name: for messages.
        module: what ``python -m`` runs.
        each: the arguments of each process, in order of rank.
        limit_s: when they are killed, all of them.

    Raises:
        ChildError: one failed, which ends the others, or they were not done in time.
    """
    with ExitStack() as stack:
        ranks: list[subprocess.Popen[str]] = []
        for arguments in each:
            command = [sys.executable, "-P", "-m", module, *arguments]
            ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            stack.callback(ranks[-1].communicate)
            stack.callback(ranks[-1].kill)
        ends_s = time.monotonic() + limit_s
        while any(rank.poll() is None for rank in ranks):
            if time.monotonic() > ends_s:
                raise ChildError(f"{name}: not done after {limit_s:g} s; all {len(ranks)} ranks were killed")
            if any(rank.poll() for rank in ranks):
                break
            time.sleep(_POLL_S)
        failed = next((number for number, rank in enumerate(ranks) if rank.poll()), None)
        if failed is not None:
            _, errors = ranks[failed].communicate()
            last = (errors.strip().splitlines() or ["no word why"])[-1]
            raise ChildError(f"{name}: rank {failed} ended with {ranks[failed].returncode}: {last}")
        return [rank.communicate()[0] for rank in ranks]


def _end(process: subprocess.Popen[Any]) -> None:
    if process.stdin is not None:
        with suppress(OSError):  # it has ended already, which is what is wanted
            process.stdin.close()
    try:
        process.wait(_END_WALL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
