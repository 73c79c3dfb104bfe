"""Read a request to open a tunnel: ``CONNECT name:port`` and nothing else (RFC 9110, section 9.3.6).

The bytes are a stranger's. What a lenient reader would repair is refused, so that no second reader can take it for
something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bridge.records.network import check_name, split_port

HEAD_MAX_BYTES: Final = 8192
END: Final = b"\r\n\r\n"
_LINE: Final = re.compile(rb"CONNECT ([\x21-\x7e]{1,512}) HTTP/1\.[01]")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\t]*)")
_OF_BODIES: Final = (b"content-length", b"transfer-encoding", b"upgrade")


class RequestRefusedError(ValueError):
    """A request that the proxy does not follow.

    Attributes:
        status: the HTTP status that says so.
        reason: why, in words.
        target: what was asked for, as far as it was understood; printable.
    """

    def __init__(self, status: int, reason: str, target: str = "") -> None:
        self.status, self.reason, self.target = status, reason, target
        super().__init__(reason)


@dataclass(frozen=True)
class ConnectRequest:
    """A tunnel that is asked for: a name in lower case, and a port."""

    name: str
    port: int

    @property
    def target(self) -> str:
        """Name and port as one text."""
        return f"{self.name}:{self.port}"


def parse_request(head: bytes) -> ConnectRequest:
    """Return what a request asks for.

    Args:
        head: all bytes up to the empty line, without it.

    Raises:
        RequestRefusedError: it is anything but a request for a tunnel to a name.
    """
    first, *headers = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        word = first.split(b" ", 1)[0]
        if word != b"CONNECT" and re.fullmatch(rb"[A-Z]{1,20}", word):
            shown = printable(first)
            raise RequestRefusedError(405, f"the method {word.decode()}: only CONNECT, for https, is taken", shown)
        raise RequestRefusedError(400, "the first line is no CONNECT request", printable(first))
    target = printable(line.group(1))
    name, port = _target(line.group(1), target)
    for header in headers:
        match = _HEADER.fullmatch(header)
        if match is None:
            raise RequestRefusedError(400, "a header line is malformed", target)
        field = match.group(1).lower()
        if field in _OF_BODIES:
            raise RequestRefusedError(400, f"a CONNECT request has no {field.decode()}", target)
        if field == b"host" and match.group(2).strip().lower().split(b":")[0] != name.encode():
            raise RequestRefusedError(400, "the Host header names another host", target)
    return ConnectRequest(name, port)


def _target(text: bytes, target: str) -> tuple[str, int]:
    words = text.decode("ascii")
    if words.count(":") != 1:
        kind = "an address" if words.count(":") > 1 else "no name with a port"
        raise RequestRefusedError(400 if kind != "an address" else 403, f"{kind} was asked for: a name:port is", target)
    try:
        name, port = split_port(words)
        return check_name(name), port
    except ValueError as error:
        raise RequestRefusedError(403, str(error), target) from error


def printable(text: bytes) -> str:
    """Return the beginning of a stranger's bytes as one printable line."""
    return "".join(char if char.isprintable() else "?" for char in text[:100].decode("ascii", "replace"))
