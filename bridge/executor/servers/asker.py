"""Start the asker in the network namespace of a run's servers: as another user, without the run's folder.

Its file system and its processes are the host's, which no server sees; of the run it has the loopback alone. Where the
servers have no network of their own it is started as any program.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from bridge.system.process import Child

NOBODY: Final = 65534
_LOOK_S: Final = 0.01
_NAMESPACE_S: Final = 30.0
_JOIN: Final = r"""
import ctypes, errno, fcntl, os, socket, sys, time
pid, uid, program, folder, streams, *target = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
asker = {"__name__": "asker"}
with open(program, "rb") as source:
    exec(compile(source.read(), program, "exec"), asker)
described = asker["read_servers"](folder)  # another user may not reach it
started = asker["start_target"](target)
libc = ctypes.CDLL(None, use_errno=True)
def join(descriptor, kind):
    if libc.setns(descriptor, kind) != 0:
        sys.exit("setns: " + os.strerror(ctypes.get_errno()))
if pid != "0":
    net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if not os.path.samestat(os.fstat(net), os.stat("/proc/self/ns/net")):
        if os.geteuid() != 0:
            join(fcntl.ioctl(net, 0xB701), 0x10000000)  # NS_GET_USERNS: whose rights decide over it
        join(net, 0x40000000)
        until = time.monotonic() + 5
        while True:  # the sandbox brings its loopback up a moment later
            try:
                socket.socket().bind(("127.0.0.1", 0))
                break
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL or time.monotonic() > until:
                    sys.exit("no loopback: " + str(error))
                time.sleep(0.002)
if uid and os.geteuid() == 0:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
if sys.platform == "linux":
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
sys.exit(asker["main"](described, int(streams), started))
"""


def start_asker(
    argv: Sequence[str],
    *,
    beside: int | None,
    uid: int,
    variables: Mapping[str, str],
    log_fd: int,
    pass_fds: Sequence[int],
) -> Child:
    """Start the asker.

    Args:
        argv: its command line: an absolute interpreter with two options, the program, its two words, and the command
            of the host's own target, which shares nothing with the servers.
        beside: a process whose network it joins; None for the host's own.
        uid: the user that it becomes, where this process may choose.
        variables: its whole environment.
        log_fd: gets what it prints.
        pass_fds: descriptors that it needs.

    Raises:
        InfrastructureError: it cannot be started.
    """
    words = [*argv[:3], "-c", _JOIN, str(beside or 0), str(uid), *argv[3:]]
    return Child(words, env=variables, cwd="/", output_fd=log_fd, pass_fds=pass_fds)


def sandboxed_process(status_fd: int | None, over: threading.Event) -> int | None:
    """Return the first process in the sandbox as bubblewrap reports it; None where there is no sandbox that does.

    Args:
        status_fd: where it reports.
        over: ends the wait.
    """
    until_s = time.monotonic() + _NAMESPACE_S
    while status_fd is not None and time.monotonic() < until_s and not over.wait(_LOOK_S):
        line, newline, _rest = os.pread(status_fd, 65536, 0).partition(b"\n")
        if newline:
            return int(json.loads(line)["child-pid"])
    return None
