"""Register probes, and run each in a process of its own.

Runs inside the sandbox with the standard library alone. A probe returns what it reached, as text; None, False or an
OSError means that it was refused. A probe that is killed or hangs was refused, too.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import select
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

TARGETS = json.loads(Path(__file__).with_name("targets.json").read_text())
PROBES: dict[str, Callable[[], object]] = {}
LIBC = ctypes.CDLL(None, use_errno=True)
LINUX_X86 = platform.machine() == "x86_64"
_TIMEOUT_S = 5.0
_SHOWN_CHARS = 160


def probe(name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Register a function without arguments under a name."""

    def register(function: Callable[[], object]) -> Callable[[], object]:
        if name in PROBES:
            raise ValueError(f"two probes are named {name!r}")
        PROBES[name] = function
        return function

    return register


def each(text: str, items: Iterable[object]) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Register a function of one argument once an item; `text` has a place for the item.

    An item may be a pair of its name and its value.
    """

    def register(function: Callable[..., object]) -> Callable[..., object]:
        for item in items:
            name, value = item if isinstance(item, tuple) else (item, item)
            probe(text.format(name))(lambda value=value: function(value))
        return function

    return register


def call(number: int, *arguments: object) -> int:
    """Make a system call.

    Raises:
        OSError: the kernel refused it.
    """
    ctypes.set_errno(0)
    result = int(LIBC.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def libc(name: str, *arguments: object) -> int:
    """Call a function of the C library that returns -1 on failure.

    Raises:
        OSError: it failed.
    """
    ctypes.set_errno(0)
    result = int(getattr(LIBC, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def answered(action: Callable[[], object]) -> str | None:
    """Return the kernel's answer unless it says that the call does not exist or is not permitted."""
    try:
        value = action()
    except OSError as error:
        shut = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT, errno.ESOCKTNOSUPPORT)
        return None if error.errno in shut else f"the kernel answered {errno.errorcode.get(error.errno or 0)}"
    return f"the kernel answered {value}"


def run_all() -> dict[str, str | None]:
    """Return what each probe reached, or those alone that were asked for; None for one that was refused."""
    only = TARGETS["only"]
    return {name: _run(function) for name, function in sorted(PROBES.items()) if not only or name in only}


def _run(function: Callable[[], object]) -> str | None:
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.write(write, _reached(function).encode()[:4096])
        os._exit(0)
    os.close(write)
    output = b""
    while select.select([read], [], [], _TIMEOUT_S)[0]:
        block = os.read(read, 4096)
        if not block:
            break
        output += block
    os.close(read)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return output.decode()[:_SHOWN_CHARS] or None


def _reached(function: Callable[[], object]) -> str:
    try:
        value = function()
    except (OSError, ImportError, KeyError):
        return ""
    except BaseException as error:
        return f"broken probe: {type(error).__name__}: {error}"
    return "" if value in {None, False} else str(value)
