"""Read the name that a TLS client asks for, from the first bytes it sends (RFC 8446, sections 4.1.2 and 5.1; RFC 6066).

The bytes are a stranger's: whatever is not of that form is an error, and nothing is guessed.
"""

from __future__ import annotations

from typing import Final

HELLO_MAX_BYTES: Final = 1 << 16
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_RECORD_HEADER_BYTES: Final = 5


class NoClientHelloError(ValueError):
    """The bytes are no TLS ClientHello, or one that names no host."""


class _Reader:
    """Takes fields off bytes, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise NoClientHelloError("a field is longer than what it lies in")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def block(self, width: int) -> _Reader:
        """Return a reader of the bytes that a length of this width announces."""
        return _Reader(self.take(self.number(width)))


def server_name(data: bytes) -> str | None:
    """Return the host that a ClientHello names; None where the bytes so far may still become one.

    Raises:
        NoClientHelloError: they are none, or it names no host or more than one.
    """
    handshake = _handshake(data)
    if handshake is None:
        return None
    hello = _Reader(handshake)
    hello.take(2 + 32)  # version and random
    hello.block(1)  # session
    hello.block(2)  # ciphers
    hello.block(1)  # compression
    if not hello.left:
        raise NoClientHelloError("it has no extensions")
    extensions = hello.block(2)
    names: list[bytes] = []
    while extensions.left:
        kind, content = extensions.number(2), extensions.block(2)
        if kind == _SERVER_NAME:
            listed = content.block(2)
            while listed.left:
                names += [listed.take(listed.number(2))] if listed.number(1) == _HOST_NAME else [b""]
    if len(names) != 1:
        raise NoClientHelloError(f"it names {len(names)} hosts")
    try:
        return names[0].decode("ascii").lower()
    except UnicodeDecodeError as error:
        raise NoClientHelloError("its name is not ASCII") from error


def _handshake(data: bytes) -> bytes | None:
    """Return the body of the first handshake message, put together from its records; None where some are missing."""
    message, at = b"", 0
    while True:
        if len(data) > at and data[at] != _HANDSHAKE:
            raise NoClientHelloError("it is no TLS handshake")
        if len(data) > at + 1 and data[at + 1] != 3:
            raise NoClientHelloError("it is of no known version of TLS")
        if len(data) < at + _RECORD_HEADER_BYTES:
            return None
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        message += data[at + _RECORD_HEADER_BYTES : at + _RECORD_HEADER_BYTES + length]
        at += _RECORD_HEADER_BYTES + length
        if message and message[0] != _CLIENT_HELLO:
            raise NoClientHelloError("its first message is no ClientHello")
        if len(message) >= 4:
            size = int.from_bytes(message[1:4], "big")
            if size > HELLO_MAX_BYTES:
                raise NoClientHelloError(f"it announces {size} bytes")
            if len(message) >= 4 + size:
                return message[4 : 4 + size]
        if len(data) <= at:
            return None
