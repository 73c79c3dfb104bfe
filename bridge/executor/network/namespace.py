"""Listen in the network namespace of a run, for a process outside of it: nothing of the proxy is in the sandbox.

A helper of a single thread, which the kernel asks for, joins the namespace, opens the socket there, hands it out and
ends. bubblewrap holds the run's program back until then. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Final

from bridge.errors import InfrastructureError
from bridge.executor.network.proxy import NamesProxy
from bridge.system.process import Child

PORT: Final = 3128  # in a namespace that nobody has used before it is free
_HELPER_S: Final = 10.0
_LOOK_S: Final = 0.002
_HELPER: Final = r"""
import ctypes, errno, fcntl, os, socket, sys, time
pid, channel, port = sys.argv[1], socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
def say(text):
    channel.sendall(text.encode()[:400])
    os._exit(1)
libc = ctypes.CDLL(None, use_errno=True)
try:
    net = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if os.path.samestat(os.fstat(net), os.stat("/proc/self/ns/net")):
        say("the run has no network namespace of its own")
    owner = fcntl.ioctl(net, 0xB701)  # NS_GET_USERNS: whose rights decide over it
    for descriptor, kind in ((owner, 0x10000000), (net, 0x40000000)):
        if libc.setns(descriptor, kind) != 0:
            say("setns: " + os.strerror(ctypes.get_errno()))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    deadline = time.monotonic() + 5
    while True:
        try:
            listener.bind(("127.0.0.1", port))
            break
        except OSError as error:  # bubblewrap brings its loopback up a moment later
            if error.errno != errno.EADDRNOTAVAIL or time.monotonic() > deadline:
                raise
            time.sleep(0.002)
    listener.listen(64)
except OSError as error:
    say(f"{error.strerror}: {error.filename or ''}")
socket.send_fds(channel, [b"ok"], [listener.fileno()])
"""


def proxy_variables(port: int = PORT) -> dict[str, str]:
    """Return the variables by which programs find the proxy; there is no NO_PROXY, because nothing else is there."""
    address = f"http://127.0.0.1:{port}"
    return dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), address)


def listen_in(pid: int, port: int = PORT) -> socket.socket:
    """Return a socket that listens on the loopback of another process's network namespace.

    Raises:
        InfrastructureError: the namespace cannot be joined, or is our own.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, "-I", "-S", "-c", _HELPER, str(pid), str(theirs.fileno()), str(port)]
        with (
            open(os.devnull, "wb") as null,
            Child(argv, env={}, cwd="/", output_fd=null.fileno(), pass_fds=(theirs.fileno(),)),
        ):
            theirs.close()
            ours.settimeout(_HELPER_S)
            try:
                answer, descriptors, _flags, _address = socket.recv_fds(ours, 512, 1)
            except TimeoutError:
                answer, descriptors = b"no answer", []
    if answer != b"ok" or len(descriptors) != 1:
        raise InfrastructureError(
            f"no proxy could be opened in the run's network namespace: {answer.decode('utf-8', 'replace')}",
            remedy="kakeya-runner doctor tries it; sandbox.network = false runs without a network",
        )
    return socket.socket(fileno=descriptors[0])


@contextlib.contextmanager
def serve_inside(proxy: NamesProxy, status: int, release: int) -> Iterator[None]:
    """Serve a proxy in the namespace that bubblewrap makes, until the end of the block.

    Args:
        proxy: serves the command's tunnels.
        status: the file in which bubblewrap says who its child is.
        release: a byte written there lets the child go on; it gets none before the proxy listens.

    Raises:
        InfrastructureError: there could be no proxy; the child was killed before it started the command.
    """
    over, problems = threading.Event(), list[InfrastructureError]()

    def serve() -> None:
        pid = _wait_for_child(status, over)
        if pid is None:
            return
        try:
            listener = listen_in(pid)
        except (InfrastructureError, OSError) as error:
            given = error if isinstance(error, InfrastructureError) else None
            problems.append(given or InfrastructureError(f"no proxy could be opened: {error}"))
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            return
        with proxy.serve(listener):
            with contextlib.suppress(OSError):
                os.write(release, b"g")
            over.wait()

    thread = threading.Thread(target=serve, name="kakeya-network", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if problems:
        raise problems[0]


def _wait_for_child(status: int, over: threading.Event) -> int | None:
    """Return the process id that bubblewrap reports; None when the command is over before."""
    while not over.wait(_LOOK_S):
        line, newline, _rest = os.pread(status, 65536, 0).partition(b"\n")
        if newline:
            return int(json.loads(line)["child-pid"])
    return None
