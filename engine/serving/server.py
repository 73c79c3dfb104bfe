"""Where the port is, and the server's life: bind, answer, drain."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.errors import UsageError

KEY_MAX_BYTES: Final = 4096
HEADER_MAX_BYTES: Final = 1 << 16
CONNECTIONS_MAX: Final = 256
DRAIN_S: Final = 60
HEAD_S: Final = 30.0
"""How long a client may take from its connection, or from the first byte of its next request, to the end of a head."""
ADDRESS: Final = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):([0-9]{1,5})")
UNIX: Final = "unix:"


@contextmanager
def listening(address: str) -> Iterator[tuple[socket.socket, str]]:
    """Listen at an address of this machine alone.

    Args:
        address: ``127.0.0.1:PORT``, ``[::1]:PORT``, ``localhost:PORT`` (port 0 for a free one), or ``unix:PATH``.

    Yields:
        The socket, and the URL of the port.

    Raises:
        UsageError: It is no such address, or somebody else listens there.
    """
    if address.startswith(UNIX):
        path = Path(address.removeprefix(UNIX))
        with _unix(path) as server:
            yield server, f"http+unix://{path}"
        return
    match = ADDRESS.fullmatch(address)
    if match is None or int(match[2]) > 65535:
        raise UsageError(
            f"--openai {address!r}; expected 127.0.0.1:PORT, [::1]:PORT or unix:PATH. From another machine: "
            "ssh -L PORT:127.0.0.1:PORT THIS-MACHINE"
        )
    host, family = ("::1", socket.AF_INET6) if match[1] == "[::1]" else ("127.0.0.1", socket.AF_INET)
    # asyncio sends at once what is written to a socket that names its protocol; of another it holds small pieces back.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((host, int(match[2])))
        except OSError as error:
            raise UsageError(f"cannot listen at {address}: {error.strerror}; choose another port, or 0") from error
        server.listen(CONNECTIONS_MAX)
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        yield server, f"http://{shown}:{server.getsockname()[1]}/v1"


@contextmanager
def _unix(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
                path.unlink()
        mask = os.umask(0o177)
        try:
            server.bind(str(path))
        except OSError as error:
            why = "somebody listens there" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise UsageError(f"cannot listen at {UNIX}{path}: {why}; choose another path") from error
        finally:
            os.umask(mask)
        server.listen(CONNECTIONS_MAX)
        try:
            yield server
        finally:
            path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


def read_key(path: Path) -> str:
    """Return the key of a file that only its owner may read.

    Raises:
        UsageError: It cannot be read, others may read it, or it holds no single line.
    """
    try:
        with path.open("rb") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(KEY_MAX_BYTES + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the key in {path}: {error}") from error
    if mode & 0o077:
        raise UsageError(f"{path} may be read by others; chmod 600 {path}")
    if not text or len(text) > KEY_MAX_BYTES or not text.isprintable() or " " in text:
        raise UsageError(f"{path} holds no key; expected one line of printable characters without spaces")
    return text


class _Impatient(H11Protocol):
    """A connection that ends where no head comes: uvicorn's own waits for ever, and counts as one of those at once."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._ending: asyncio.TimerHandle | None = None
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a client."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._ending is None:
            self._ending = self.loop.call_later(HEAD_S, self._end)

    def _end(self) -> None:
        self.transport.close()

    def _forget(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None


class _Draining(uvicorn.Server):
    """A server that a signal ends as an end: uvicorn's own raises it again, and nothing is cleaned up behind it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        ends = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in ends}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def configured(app: Starlette) -> uvicorn.Config:
    """Return how an application is served."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=HEADER_MAX_BYTES,
        http=_Impatient,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=DRAIN_S,
        lifespan="on",
    )


def serve(app: Starlette, server: socket.socket) -> None:
    """Answer until SIGTERM or SIGINT, then finish what has begun, for a minute at the most."""
    _Draining(configured(app)).run(sockets=[server])
