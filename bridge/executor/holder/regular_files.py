"""Open what has to be a regular file, in a folder in which others may write, too.

A pipe in the place of a file would block whoever opens it, and a link would lead elsewhere. Knows nothing about what
the files hold.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file without following a link or waiting for anybody; return its descriptor.

    Args:
        path: the file.
        flags: as `os.open` takes them.
        mode: its permissions, where it is made.

    Raises:
        OSError: there is none, it may not be opened, or it is no regular file.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is no regular file", str(path))


def reading(path: Path) -> BinaryIO:
    """Return a regular file, open for reading.

    Raises:
        OSError: as `open_regular`.
    """
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        OSError: as `open_regular`.
    """
    with reading(path) as file:
        return file.read()
