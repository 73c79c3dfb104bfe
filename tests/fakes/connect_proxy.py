"""A web proxy on loopback, as a closed place has one: it knows CONNECT and which server a name stands for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping


class ConnectProxy:
    """The running proxy.

    Args:
        ports: the port on this machine that each ``HOST:PORT`` stands for; anything else is refused.

    Attributes:
        destinations: every ``HOST:PORT`` that somebody asked for.
    """

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports, self.destinations = dict(ports), list[str]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and (data := client.recv(4096)):
                head += data
            method, _, place = head.split(b"\r\n", 1)[0].decode("latin-1").rpartition(" ")[0].partition(" ")
            self.destinations.append(place)
            if method != "CONNECT" or place not in self._ports:
                client.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", self._ports[place])) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
