"""What hostile jobs have in common: the programs they run, and what is asked of how they ended."""

from __future__ import annotations

FORKS = """
import os, time
for kind in ("child", "grandchild", "own session", "own group"):
    if os.fork() == 0:
        if kind == "grandchild" and os.fork():
            os._exit(0)
        if kind == "own session":
            os.setsid()
            if os.fork():
                os._exit(0)
        if kind == "own group":
            os.setpgid(0, 0)
        time.sleep(600)
"""


NO_TERM = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"


def no_survivors(execution) -> None:
    assert [command.survivors for command in execution.commands] == [0] * len(execution.commands)


def limits_of(execution) -> list[str]:
    return [hit.limit for hit in execution.limits_hit]
