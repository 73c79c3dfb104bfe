"""A ticket: with it a runner that lives for one run signs under a name, until a time that the bus's owner set.

It holds a private key whose public half the bus's root lists; who has the ticket speaks as that runner until then.

Knows no bus and no clock.
"""

from __future__ import annotations

import base64
import ctypes
import os
import shlex
import stat
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal

from pydantic import Field

from bridge.errors import UsageError
from bridge.records.base import Moment, Name, Record

MAX_BYTES: Final = 4096


class Ticket(Record):
    """One runner's right to sign on one bus for a while, and its key; a secret.

    Attributes:
        bus_id: of the bus.
        name: of the runner.
        root_key: fingerprint of the bus owner's key.
        until: what the runner signs from then on does not count.
        key: the private ed25519 key, 32 bytes in base64.
    """

    schema_version: Literal[1] = 1
    bus_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    name: Name
    root_key: Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
    until: Moment
    key: Annotated[str, Field(pattern="^[A-Za-z0-9+/]{43}=$")]

    @property
    def private(self) -> bytes:
        """The private key."""
        return base64.b64decode(self.key)

    def write(self, path: Path) -> None:
        """Write it into a new file that is its user's alone.

        Raises:
            UsageError: the file is there, or cannot be made.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise UsageError(f"cannot make {path}: {error.strerror}", remedy="name another file: --out FILE") from error
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.canonical() + b"\n")


def read_ticket(path: Path) -> Ticket:
    """Return the ticket in a file.

    Raises:
        UsageError: there is none, or others may read it.
    """
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()[: MAX_BYTES + 1]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy=_REMEDY) from error
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(
            f"{path} is open to others (mode {stat.S_IMODE(mode):o})", remedy=f"chmod 600 {shlex.quote(str(path))}"
        )
    return parse_ticket(data, str(path))


def piped_ticket(stream: BinaryIO | None) -> Ticket:
    """Return the ticket that comes through a pipe.

    Args:
        stream: the standard input; None where this process was started without one.

    Raises:
        UsageError: nothing can come, or what comes is no ticket.
    """
    if stream is None:
        said = "--ticket - reads the ticket from standard input, which is closed"
        raise UsageError(said, remedy="pipe it in, or name its file: --ticket FILE")
    return parse_ticket(stream.read(MAX_BYTES + 1), "standard input")


def take_variable(name: str) -> str | None:
    """Return the value of a variable of the environment, None where there is none, and wipe it out of this process.

    To unset it is not enough: what a process was started with stays where the kernel shows it to every process of the
    same user, a child without a sandbox among them. Its parents have it still.
    """
    text = os.environ.get(name)
    if text is None:
        return None
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    if place := libc.getenv(name.encode()):
        ctypes.memset(place, 0, len(ctypes.string_at(place)))
    del os.environ[name]
    return text


def parse_ticket(data: bytes, where: str) -> Ticket:
    """Return the ticket that some bytes are.

    Raises:
        UsageError: they are none.
    """
    try:
        return Ticket.parse(data.strip(), max_bytes=MAX_BYTES)
    except ValueError:  # no strict JSON, or of another shape; what was found may be the key, and is not shown
        raise UsageError(f"{where} holds no ticket", remedy=_REMEDY) from None


_REMEDY: Final = "the bus's owner makes one: kakeya-runner trust ticket NAME --for 12h --bus ROUTE"
