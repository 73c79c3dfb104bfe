"""Let a run reach hosts by their names: a CONNECT proxy that its supervisor holds, outside of the run's sandbox.

In this order: the name is compared with what the run may reach, then resolved; every address that comes of it has to be
public and none of this machine's own; the connection goes to an address that was so checked; and the first bytes of the
client have to be a TLS ClientHello that names the same host, but on port 80. Names are resolved anew for each
connection. What is refused ends that connection alone, and is written down.

A thread for each connection, and one more while it is open. Knows nothing about sandboxes: it serves a listening
socket.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from bridge.executor.network.addresses import is_own, is_public, resolve
from bridge.executor.network.client_hello import HELLO_MAX_BYTES, NoClientHelloError, server_name
from bridge.executor.network.connect_request import (
    END,
    HEAD_MAX_BYTES,
    ConnectRequest,
    RequestRefusedError,
    parse_request,
    printable,
)
from bridge.executor.network.ledger import Ledger
from bridge.records.network import Network, allows

PLAIN_PORT: Final = 80
CONNECTIONS_MAX_COUNT: Final = 64
_FIRST_BYTES_S: Final = 10.0  # for the request, and again for the ClientHello
_CONNECT_S: Final = 10.0
_ADDRESSES_MAX_COUNT: Final = 4
_BLOCK_BYTES: Final = 1 << 18
_ACCEPT_S: Final = 0.5  # what closes a listening socket does not wake who waits for it everywhere
_JOIN_S: Final = 2.0
_ACCESS_DENIED: Final = b"\x15\x03\x01\x00\x02\x02\x31"  # a fatal TLS alert, RFC 8446 section 6
_PHRASES: Final = {
    400: "Bad Request", 403: "Forbidden", 405: "Method Not Allowed", 408: "Request Timeout",
    431: "Request Header Fields Too Large", 502: "Bad Gateway", 503: "Service Unavailable",
}  # fmt: skip


def dial_tcp(address: str, port: int) -> socket.socket:
    """Return a connection to an address.

    Raises:
        OSError: nobody answers there in time.
    """
    return socket.create_connection((address, port), timeout=_CONNECT_S)


class NamesProxy:
    """Serves the tunnels of one command.

    Args:
        network: names, or ``internet``.
        ledger: of the command's run.
        look_up: returns the addresses of a name and port; raises OSError.
        dial: returns a connection to an address and port; raises OSError.
    """

    def __init__(
        self,
        network: Network,
        ledger: Ledger,
        look_up: Callable[[str, int], tuple[str, ...]] = resolve,
        dial: Callable[[str, int], socket.socket] = dial_tcp,
    ) -> None:
        self._network, self._ledger, self._look_up, self._dial = network, ledger, look_up, dial
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX_COUNT)
        self._closing = False

    @contextlib.contextmanager
    def serve(self, listener: socket.socket) -> Iterator[None]:
        """Serve a listening socket until the end of the block; it is closed then with all of its connections."""
        listener.settimeout(_ACCEPT_S)
        thread = threading.Thread(target=self._accept, args=(listener,), name="kakeya-proxy", daemon=True)
        thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._closing = True
                sockets = [*self._open]
            for connection in (listener, *sockets):
                _shut(connection)
            thread.join(_JOIN_S)
            listener.close()
            deadline = time.monotonic() + _JOIN_S
            for _ in range(CONNECTIONS_MAX_COUNT):  # each connection gives its slot back when its last byte is counted
                self._slots.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing:
            try:
                client, _address = listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                busy = f"more than {CONNECTIONS_MAX_COUNT} connections at once"
                self._refuse(client, RequestRefusedError(503, busy))
                client.close()
                continue
            try:
                threading.Thread(target=self._serve_one, args=(client,), name="kakeya-tunnel", daemon=True).start()
            except RuntimeError:  # this machine has no thread left: the next connection may find one
                client.close()
                self._slots.release()

    def _serve_one(self, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError), self._closed_with_us(client):
                try:
                    request = parse_request(_read_head(client))
                    server = self._connect(request)
                except RequestRefusedError as error:
                    self._refuse(client, error)
                    return
                with server, self._closed_with_us(server):
                    self._tunnel(client, server, request)
        finally:
            self._slots.release()

    def _connect(self, request: ConnectRequest) -> socket.socket:
        """Return a connection to an address of the name that was asked for.

        Raises:
            RequestRefusedError: the run may not reach it, or nobody answers there.
        """
        if not allows(self._network, request.name, request.port):
            raise RequestRefusedError(403, "the run may not reach this name and port", request.target)
        try:
            addresses = self._look_up(request.name, request.port)
        except (OSError, UnicodeError) as error:
            raise RequestRefusedError(502, "the name has no address", request.target) from error
        if not addresses or not all(is_public(address) and not is_own(address) for address in addresses):
            raise RequestRefusedError(403, "the name leads to an address that is not public", request.target)
        for address in addresses[:_ADDRESSES_MAX_COUNT]:
            try:
                return self._dial(address, request.port)
            except OSError:
                continue
        raise RequestRefusedError(502, "nobody answers at its addresses", request.target)

    def _tunnel(self, client: socket.socket, server: socket.socket, request: ConnectRequest) -> None:
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        first = b""
        if request.port != PLAIN_PORT:
            try:
                first = _read_hello(client, request.name)
            except NoClientHelloError as error:
                self._ledger.refuse(request.target, f"its first bytes: {error}")
                client.sendall(_ACCESS_DENIED)
                _drain(client)
                return
        traffic, add = self._ledger.begin(request.name, request.port), self._ledger.add
        for each in (client, server):
            each.settimeout(None)
        server.sendall(first)
        add(traffic, sent=len(first))
        upward = threading.Thread(
            target=_relay, args=(client, server, lambda count: add(traffic, sent=count)), daemon=True
        )
        upward.start()
        _relay(server, client, lambda count: add(traffic, received=count))
        upward.join()

    def _refuse(self, client: socket.socket, error: RequestRefusedError) -> None:
        """Say no with the reason, and write it down."""
        self._ledger.refuse(error.target, error.reason)
        body = f"kakeya: {error.reason}\n".encode("ascii", "replace")
        head = f"HTTP/1.1 {error.status} {_PHRASES[error.status]}\r\nContent-Type: text/plain\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        with contextlib.suppress(OSError):
            client.settimeout(1.0)
            client.sendall(head.encode("ascii") + body)
            _drain(client)

    @contextlib.contextmanager
    def _closed_with_us(self, connection: socket.socket) -> Iterator[None]:
        """Have a socket closed with the proxy, while the block lasts.

        Raises:
            OSError: the proxy is being closed.
        """
        with self._lock:
            if self._closing:
                raise OSError("the proxy is being closed")
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)


def _read_head(client: socket.socket) -> bytes:
    """Return a request's head without the empty line behind it.

    Raises:
        RequestRefusedError: it is too long, too slow, cut off, or followed by bytes that nobody asked for yet.
    """
    data = b""
    for block in _blocks(client):
        if block is None:
            raise RequestRefusedError(408, f"no whole request within {_FIRST_BYTES_S:g} s", _first_line(data))
        data += block
        head, end, rest = data.partition(END)
        if end and not rest:
            return head
        if end:
            raise RequestRefusedError(400, "bytes came behind the request, before its answer", _first_line(data))
        if len(data) > HEAD_MAX_BYTES:
            raise RequestRefusedError(431, f"a request of more than {HEAD_MAX_BYTES} bytes", _first_line(data))
    raise RequestRefusedError(400, "the request was cut off", _first_line(data))


def _first_line(data: bytes) -> str:
    return printable(data.partition(b"\r\n")[0])


def _read_hello(client: socket.socket, name: str) -> bytes:
    """Return the client's first bytes, once they are a ClientHello that names this host.

    Raises:
        NoClientHelloError: they are none, name another host, or do not come.
    """
    data = b""
    for block in _blocks(client):
        if block is None:
            raise NoClientHelloError(f"no TLS ClientHello within {_FIRST_BYTES_S:g} s")
        data += block
        named = server_name(data)
        if named == name:
            return data
        if named is not None:
            raise NoClientHelloError("a TLS ClientHello for another host")
        if len(data) > 2 * HELLO_MAX_BYTES:
            raise NoClientHelloError("a TLS ClientHello that does not end")
    raise NoClientHelloError("no TLS ClientHello")


def _blocks(client: socket.socket) -> Iterator[bytes | None]:
    """Yield what a client sends until it ends; None when the time for its first bytes is over."""
    deadline = time.monotonic() + _FIRST_BYTES_S
    while (left_s := deadline - time.monotonic()) > 0:
        client.settimeout(left_s)
        try:
            block = client.recv(4096)
        except TimeoutError:
            break
        if not block:
            return
        yield block
    yield None


def _drain(client: socket.socket) -> None:
    """Take what is still on its way for a moment: a close over unread bytes would take our answer back."""
    client.shutdown(socket.SHUT_WR)
    client.settimeout(0.2)
    for _ in range(16):
        if not client.recv(65536):
            return


def _relay(source: socket.socket, target: socket.socket, count: Callable[[int], None]) -> None:
    """Carry bytes one way until the source ends, then end the target's way too."""
    copy = _splice if sys.platform == "linux" else _copy
    with contextlib.suppress(OSError):
        copy(source, target, count)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _copy(source: socket.socket, target: socket.socket, count: Callable[[int], None]) -> None:
    while block := source.recv(_BLOCK_BYTES):
        target.sendall(block)
        count(len(block))


def _splice(source: socket.socket, target: socket.socket, count: Callable[[int], None]) -> None:
    """Carry bytes through a pipe in the kernel: they are never copied into this process."""
    out, into = os.pipe()
    try:
        while size := os.splice(source.fileno(), into, _BLOCK_BYTES):
            left = size
            while left:
                left -= os.splice(out, target.fileno(), left)
            count(size)
    finally:
        os.close(out)
        os.close(into)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
