"""A drafter's server in a process of its own, ended with ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from engine.errors import ChildError

SERVING = "serving at "
"""What the line begins with that a server writes once it can be asked."""
_END_WALL_S = 10.0


class DrafterProcess:
    """A running ``kakeya-engine distributed serve`` on a port of this machine that it chose.

    Raises:
        ChildError: If it ends before it serves.
    """

    def __init__(self, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "engine.cli", "distributed", "serve", "--until-eof", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline() if self.process.stdout is not None else ""
        if not line.startswith(SERVING):
            raise ChildError(f"the drafter's server ended with code {self.process.wait()} instead of serving")
        self.address = line.removeprefix(SERVING).split()[0]

    def close(self) -> None:
        """End it: its standard input ends; one that does not end is killed."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(_END_WALL_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
