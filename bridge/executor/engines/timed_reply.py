"""An answer over http that has to be whole by a moment: its status line and headers too, however slowly they drip.

A socket's own timeout counts anew with every byte. Knows nothing about what is answered.
"""

from __future__ import annotations

import http.client
import io
import socket
from typing import TYPE_CHECKING

from bridge.system.clock import Clock

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class TimedReply(http.client.HTTPResponse):
    """Reads until a moment of the steady clock; what is read later raises TimeoutError.

    Args:
        sock: it comes through this.
        until_s: the moment.
        clock: says how long that is from now.
        method: of the request.
    """

    def __init__(self, sock: socket.socket, *, until_s: float, clock: Clock, method: str | None = None) -> None:
        super().__init__(sock, method=method)
        self.fp = io.BufferedReader(_TimedStream(sock, self.fp.detach(), until_s, clock))


class _TimedStream(io.RawIOBase):
    """The bytes of a socket, each read with what is left of the time."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, until_s: float, clock: Clock) -> None:
        self._sock, self._raw, self._until_s, self._clock = sock, raw, until_s, clock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        left_s = self._until_s - self._clock.steady_s()
        if left_s <= 0:
            raise TimeoutError
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
