"""Hold a run in a process that does not descend from its engine's, for engines that signal everything that does.

The engine's process only waits. When it is told to end, or is killed, the run hears of that, ends what it started and
writes down what it came to; so the engine's stop means what the runner's means, and nothing is left behind.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from bridge.errors import KakeyaError

_FAILED: Final = 1
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def apart(run: Callable[[Callable[[], bool]], int]) -> int:
    """Call a function in a process of its own, session and parent included, and return its exit code.

    Args:
        run: gets a function that returns whether the process that waits was told to end or is gone. It is called
            before this process has threads.
    """
    lifeline, hold = os.pipe()
    heard, say = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # one that comes before it is listened for waits
    middle = os.fork()
    if middle == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.close(hold)
        os.close(heard)
        _be(run, lifeline, say)
    os.close(lifeline)
    os.close(say)

    holding = [hold]

    def let_go(_number: int, _frame: object) -> None:
        while holding:
            os.close(holding.pop())

    for number in _ENDING:
        signal.signal(number, let_go)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.waitpid(middle, 0)
    code = os.read(heard, 1)
    return code[0] if code else _FAILED


def _be(run: Callable[[Callable[[], bool]], int], lifeline: int, say: int) -> None:
    """Run, say the exit code, and end without what the process that waits would do at its own end."""
    code = _FAILED
    try:
        code = run(lambda: bool(select.select([lifeline], [], [], 0.0)[0]))  # it is readable once nobody can write
    except KakeyaError as error:
        code = error.exit_code
        _tell(f"kakeya-runner: {error}\n")
    except BaseException:  # noqa: BLE001 - nobody is above
        _tell(traceback.format_exc())
    finally:
        try:
            os.write(say, bytes([code]))
        finally:  # whoever waited may have been killed
            os._exit(code)


def _tell(text: str) -> None:
    with suppress(OSError):  # a full disk takes no words
        sys.stderr.write(text)
        sys.stderr.flush()
