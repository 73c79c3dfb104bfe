"""Which addresses a drafter may be served at and asked at: this machine's own.

Nothing on the stream is encrypted and nobody is asked who they are, so it never leaves a machine by itself: ``ssh -L``
carries it to another one.
"""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

from engine.errors import UsageError

UNIX = "unix:"
MOST_PATH_BYTES = 107
"""What a socket's path may have: the system keeps it in 108 with the zero behind it."""
ODD_IN_PATHS = "%?#"
"""What the two ends of gRPC read as something else than a character of the path."""
MOST_PORT_DIGITS = 5
KNOCK_S = 1.0


def check_loopback(address: str, doing: str) -> str:
    """Return ``HOST:PORT`` or ``unix:/PATH`` as gRPC reads it; ``doing`` says what would happen there.

    Raises:
        UsageError: If it is no address, or one that other machines reach.
    """
    if address.startswith(UNIX):
        path = address.removeprefix(UNIX)
        if not path.startswith("/"):
            raise UsageError(f"{doing} {address!r}; expected unix:/ and the rest of an absolute path")
        if not path.isprintable() or set(path) & set(ODD_IN_PATHS) or len(path.encode()) > MOST_PATH_BYTES:
            raise UsageError(
                f"{doing} {address!r}; expected a path of at most {MOST_PATH_BYTES} bytes that can be printed and has "
                f"none of {' '.join(ODD_IN_PATHS)}"
            )
        return address
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not _is_port(port):
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


def _is_port(text: str) -> bool:
    # The length first: Python refuses to read a number of more than 4300 digits.
    return len(text) <= MOST_PORT_DIGITS and text.isascii() and text.isdigit() and int(text) <= 65535


def check_unserved(address: str) -> None:
    """Check that a socket's path is free for a server: gRPC would take it from whoever serves there, without a word.

    Args:
        address: As ``check_loopback`` returned it; a port is the system's to refuse.

    Raises:
        UsageError: If its folder is missing, something else lies there, or somebody serves there.
    """
    if not address.startswith(UNIX):
        return
    path = Path(address.removeprefix(UNIX))
    if not path.parent.is_dir():
        raise UsageError(f"no folder {str(path.parent)!r} for the socket {str(path)!r}; make it, or name another path")
    if not path.is_symlink() and not path.exists():
        return
    if path.is_symlink() or not path.is_socket():
        raise UsageError(f"{str(path)!r} is no socket; name another path")
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(KNOCK_S)
        try:
            knocking.connect(str(path))
        except ConnectionRefusedError:
            return  # left behind by a server that was killed
        except OSError as error:
            raise UsageError(f"the socket {str(path)!r} is somebody's: {error}; name another path") from error
    raise UsageError(f"somebody serves at {str(path)!r} already; end that server, or name another path")
