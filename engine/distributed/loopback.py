"""Which addresses a drafter may be served at and asked at: this machine's own.

Nothing on the stream is encrypted and nobody is asked who they are, so it never leaves a machine by itself: ``ssh -L``
carries it to another one.
"""

from __future__ import annotations

import ipaddress

from engine.errors import UsageError

UNIX = "unix:"


def check_loopback(address: str, doing: str) -> str:
    """Return ``HOST:PORT`` or ``unix:/PATH`` as gRPC reads it; ``doing`` says what would happen there.

    Raises:
        UsageError: If it is no address, or one that other machines reach.
    """
    if address.startswith(UNIX):
        if not address.removeprefix(UNIX).startswith("/"):
            raise UsageError(f"{doing} {address!r}; expected unix:/ and the rest of an absolute path")
        return address
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise UsageError(f"{doing} {address!r}; expected 127.0.0.1:PORT, [::1]:PORT or unix:/PATH")
    try:
        known = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        known = None
    if known is None or not known.is_loopback:
        raise UsageError(
            f"{doing} {address!r} is refused: the stream is not encrypted and asks nobody who they are, so that it may "
            "only be reached on this machine. Use 127.0.0.1 and carry it with `ssh -L PORT:127.0.0.1:PORT HOST`."
        )
    return f"[{known}]:{port}" if known.version == 6 else f"{known}:{port}"
