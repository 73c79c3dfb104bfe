"""What a program in the sandbox tells of what it tried, and what is asked of that."""

from __future__ import annotations

import json

TRY = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def attempt(action, *arguments):
    try:
        value = action(*arguments)
    except OSError as error:
        return "refused"
    return "got through: %r" % (value,)
def tell(**found):
    print(json.dumps(found))
"""


def told(execution) -> dict[str, str]:
    assert (execution.ok, execution.program_exit) == (True, 0), execution.log.decode()
    return json.loads(execution.log.splitlines()[0])


def refused(execution, *names: str) -> None:
    assert told(execution) == dict.fromkeys(names, "refused")
