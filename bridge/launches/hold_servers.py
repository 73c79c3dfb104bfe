"""Start inference servers, hold them while a launch lasts, and end them when the runner says so.

Standard library only, and nothing of this package: it runs in the sandbox beside the servers. argv: ``--@baseline
PROGRAM ... --@candidate PROGRAM ...``, or one of the two. In a word of a program ``@PORT@`` stands for its port.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from typing import NoReturn

SEPARATOR = "--@"
PORT = "@PORT@"
PORTS_NAME = "KAKEYA_SERVER_PORTS"
HOLD_NAME = "KAKEYA_SERVERS_HOLD"
STARTED_NAME = "KAKEYA_SERVERS_STARTED"
GRACE_S = 10.0
ENDS_S = 0.5
KEPT_BYTES = 1 << 14  # of what a server prints; its last lines say why it ended
LINES = 5
LINE_CHARS = 400


class Server:
    """One server, in a session of its own.

    Args:
        arm: `baseline` or `candidate`.
        argv: its program.
        environment: of the run, without what the runner told this program.
    """

    def __init__(self, arm: str, argv: list[str], environment: dict[str, str]) -> None:
        self.arm = arm
        self.printed: deque[bytes] = deque()
        self.exit_code: int | None = None
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(argv, environment, writing)
        os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def poll(self) -> int | None:
        """Return its exit code, -n for signal n; None while it lives."""
        if self.exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
        return self.exit_code

    def signal(self, number: int) -> None:
        """Send a signal to its whole session's first group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def last_lines(self) -> list[str]:
        """Return the last lines that it printed."""
        self._reader.join(1.0 if self.exit_code is not None else 0.0)
        return b"".join(self.printed).decode("utf-8", "replace")[-LINES * LINE_CHARS :].splitlines()[-LINES:]

    def _read(self, reading: int) -> None:
        """Keep the end of what it prints, however much that is."""
        length = 0
        while block := os.read(reading, 4096):
            self.printed.append(block)
            length += len(block)
            while length > KEPT_BYTES:
                length -= len(self.printed.popleft())


def main(words: list[str]) -> int:
    """Hold the servers until the runner says that the launch is over; end in 1 when one of them ends before."""
    ports = [int(port) for port in os.environ[PORTS_NAME].split(",")]
    hold, started = (int(os.environ[name]) for name in (HOLD_NAME, STARTED_NAME))
    for number in (hold, started):
        os.set_inheritable(number, False)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAKEYA_")}
    servers = [
        Server(arm, [word.replace(PORT, str(port)) for word in argv], environment)
        for (arm, argv), port in zip(_arms(words).items(), ports, strict=False)
    ]
    os.write(started, json.dumps({server.arm: server.pid for server in servers}).encode() + b"\n")
    os.close(started)
    try:
        why = _hold(servers, hold)
    finally:
        _end(servers)
    if why:
        lines = [f"{server.arm} printed last: {line}" for server in servers for line in server.last_lines()]
        sys.stderr.write("\n".join((*lines, why)) + "\n")
    return 1 if why else 0


def _arms(words: list[str]) -> dict[str, list[str]]:
    """Return the command line of each arm."""
    arms: dict[str, list[str]] = {}
    for word in words:
        if word.startswith(SEPARATOR):
            arms[word.removeprefix(SEPARATOR)] = []
        else:
            arms[list(arms)[-1]].append(word)
    return arms


def _become(argv: list[str], environment: dict[str, str], output: int) -> NoReturn:
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for number, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(number, target)
        os.execvpe(argv[0], argv, environment)  # noqa: S606 - this is the door, inside of a sandbox
    except OSError as error:
        os.write(output, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _hold(servers: list[Server], hold: int) -> str:
    """Wait for the runner's word or a server's end; return why the launch failed, nothing where it did not."""
    line = b""
    while not line.endswith(b"\n"):
        if select.select([hold], [], [], 0.1)[0]:
            block = os.read(hold, 4096)
            if not block:
                return "the runner went away"
            line += block
            continue
        if ended := _ended(servers):
            return ended
    why = line.decode("utf-8", "replace").strip().removeprefix("end").strip()
    until_s = time.monotonic() + ENDS_S
    while why and time.monotonic() < until_s:  # a server that dies loses its connections first
        if ended := _ended(servers):
            return ended
        time.sleep(0.02)
    return why


def _ended(servers: list[Server]) -> str:
    """Return which server ended by itself, nothing where all run."""
    for server in servers:
        if server.poll() is not None:
            return f"{server.arm}: the server ended by itself, exit code {server.exit_code}"
    return ""


def _end(servers: list[Server]) -> None:
    """Ask all to end, and after ten seconds end what is left of them."""
    for server in servers:
        server.signal(signal.SIGTERM)
    until_s = time.monotonic() + GRACE_S
    while time.monotonic() < until_s and any(server.poll() is None for server in servers):
        time.sleep(0.02)
    for server in servers:
        server.signal(signal.SIGKILL)
        if server.exit_code is None:
            server.exit_code = os.waitstatus_to_exitcode(os.waitpid(server.pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
