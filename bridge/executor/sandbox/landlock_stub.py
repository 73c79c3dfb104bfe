"""Put Landlock and a filter of system calls around this process, then become the program.

Run as a script (`python -I -S -c … ORDER`), as the run's own user and in its folder. The order is one JSON object in
an open file: `abi`, `rules` ([path, rights] pairs, of which those that are not there are left out), `filter` (hex of
the filter's instructions; empty inside namespaces, which have one), `status` (a file that gets a word when all is in
place), `argv`. Standard library only: it starts without site packages. Structures and numbers are those of
linux/landlock.h and linux/seccomp.h.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
import sys
from typing import Any

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
PATH_BENEATH = 1
NET_TCP = 0b11  # bind and connect, from ABI 4
SCOPES = 0b11  # abstract sockets and signals, from ABI 6
OF_FILES = (
    0b1 | 0b10 | 0b100 | 1 << 14 | 1 << 15
)  # execute, write, read, truncate, ioctl: what a rule of a file may say
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
STARTED = b'"exit-code"'  # what bubblewrap writes as well once it came to start a program


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def rights_of(abi: int) -> int:
    """Return all rights of the file system that an ABI knows: 13, and one more each from 2, 3 and 5."""
    return (1 << 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)) - 1


def main() -> None:
    """Follow the order; what the kernel does not take ends the process before the program is started."""
    descriptor = int(sys.argv[1])
    order: dict[str, Any] = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    os.close(descriptor)
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, number: int, *arguments: object) -> int:
        result: int = libc.syscall(number, *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
        return result

    abi = order["abi"]
    ports = NET_TCP if order["filter"] else 0  # inside namespaces the network is theirs to hold
    fields = [
        rights_of(abi),
        *([ports] if abi >= 4 else []),
        *([SCOPES] if abi >= 6 else []),
    ]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = call("Landlock", CREATE_RULESET, attributes, len(attributes), 0)
    for path, rights in order["rules"]:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        allowed = rights & rights_of(abi) & (-1 if stat.S_ISDIR(os.fstat(place).st_mode) else OF_FILES)
        call(f"Landlock for {path}", ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
        os.close(place)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no new privileges")
    call("Landlock", RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    code = bytes.fromhex(order["filter"])
    if code and libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(Program(len(code) // 8, code)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls")
    os.pwrite(order["status"], STARTED, 0)
    os.close(order["status"])
    os.execve(order["argv"][0], order["argv"], os.environ)  # noqa: S606 - that is the point


if __name__ == "__main__":
    main()
