"""How long Ray's server may take, and how much it is asked."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from bridge.errors import InfrastructureError
from bridge.executor.engines.jobs_server import JobsServer
from tests.support.placed_queue import CLOCK


@contextmanager
def dripping(begin: bytes) -> Iterator[str]:
    """Yield the address of a server that sends the beginning of an answer, then a byte every 10 ms."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(begin)
                for _ in range(1000):
                    connection.sendall(b"a")
                    time.sleep(0.01)

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"]
)
def test_an_answer_that_drips_has_the_time_of_the_whole_answer(begin: bytes) -> None:
    with dripping(begin) as address:
        began_s = CLOCK.steady_s()
        with pytest.raises(InfrastructureError, match="does not answer: not in time"):
            JobsServer(address, lambda: None, CLOCK).call("GET", "api", "version", patience_s=0.2)
        assert CLOCK.steady_s() - began_s < 3.0
