"""The supervisor's own load: processes that hold processors while launches run, and die with whoever started them."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Final

from bridge.executor.command.supervise import KEEPERS
from bridge.system.process import Child

_SPIN: Final = "import os, sys\nparent = int(sys.argv[1])\nwhile os.getppid() == parent:\n    sum(range(100_000))\n"


def half_the_processors() -> int:
    """Return half of the processors that this process may use, at least one."""
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, usable // 2)


class Burner:
    """Holds processors while the block lasts.

    They are no processes of the run: what they use counts as others' in its telemetry.
    """

    def __init__(self, count: int) -> None:
        """Take how many processors to hold, 0 for none."""
        self._count = count
        self._children: list[Child] = []

    def __enter__(self) -> Burner:
        """Start them.

        Raises:
            InfrastructureError: one cannot be started; none is left then.
        """
        quiet = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        argv = [sys.executable, "-I", "-S", "-c", _SPIN, str(os.getpid())]
        try:
            for _ in range(self._count):
                child = Child(argv, env={}, cwd="/", output_fd=quiet)
                KEEPERS.add(child.pid)
                self._children.append(child)
        except BaseException:
            self._end()
            raise
        finally:
            os.close(quiet)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for child in self._children:
            child.kill()
            KEEPERS.discard(child.pid)
        self._children.clear()
