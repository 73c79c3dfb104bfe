"""A drafter's server on a host of its own, as far as the network goes: another namespace, reached over a veth pair.

Both ends of a session stay on loopback, as anywhere: a relay on either side carries the connection, as `ssh -L` does
between two machines. ``python -m benchmarks.studies.namespaces HOST OPTIONS`` is the far side; it prints the port that
it relays from ``HOST`` to its drafter.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.studies.report import ROOT
from engine.isolation.delayed_link import DelayedLink
from engine.isolation.drafter_process import DrafterProcess

PREFIX = "kakeya-far-"
NEAR, FAR, BITS = "198.18.0.1", "198.18.0.2", 30
"""Addresses of the range that is set apart for measuring networks (RFC 2544)."""
READ_BYTES = 1 << 18


def obstacle() -> str:
    """Return why there can be no namespace here, empty where there can."""
    if os.geteuid() != 0:
        return "a network namespace needs root: run the study as root, or leave these cases open"
    return "" if shutil.which("ip") else "a network namespace needs `ip` of iproute2, which is not installed"


class FarDrafter:
    """A drafter served in a network namespace; ``address`` is where this one reaches it.

    Raises:
        RuntimeError: there can be no namespace here, or nothing is served in it.
    """

    def __init__(self, options: Sequence[str]) -> None:
        if reason := obstacle():
            raise RuntimeError(reason)
        sweep()
        self.name = f"{PREFIX}{os.getpid()}"
        near, far = f"kn{os.getpid()}", f"kf{os.getpid()}"
        with ExitStack() as stack:
            _ip("netns", "add", self.name)
            stack.callback(_ip, "netns", "delete", self.name)
            _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self.name)
            _ip("address", "add", f"{NEAR}/{BITS}", "dev", near)
            _ip("link", "set", near, "up")
            _ip("-n", self.name, "address", "add", f"{FAR}/{BITS}", "dev", far)
            _ip("-n", self.name, "link", "set", far, "up")
            _ip("-n", self.name, "link", "set", "lo", "up")
            command = ["ip", "netns", "exec", self.name, sys.executable, "-m", __name__, FAR, *options]
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(process.communicate)
            link = DelayedLink(f"{FAR}:{_port(process)}", 0.0)
            stack.callback(link.close)
            self.address = link.address
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End the relays and the server, and remove the namespace with its link."""
        self._stack.close()


def _port(process: subprocess.Popen[str]) -> int:
    """Return where a far side is reached, once it says so."""
    said = "" if process.stdout is None else process.stdout.readline()
    if not said:
        raise RuntimeError(f"nothing is served in the namespace; its process ended with {process.wait()}")
    return int(said)


def sweep() -> None:
    """Remove namespaces whose study was killed."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    for name in (line.split()[0] for line in listed.splitlines() if line.startswith(PREFIX)):
        if not Path(f"/proc/{name.removeprefix(PREFIX)}").exists():
            _ip("netns", "delete", name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")


async def _relay(host: str, target: str) -> None:
    """Carry connections from a port of ``host`` to ``target`` until standard input ends."""
    to, _, port = target.rpartition(":")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(READ_BYTES):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(to, int(port))
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(connected, host, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    served = DrafterProcess(sys.argv[2:])
    try:
        asyncio.run(_relay(sys.argv[1], served.address))
    finally:
        served.close()
