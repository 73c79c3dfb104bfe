"""Write files so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file through a sibling and a rename; flushed to disk."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sibling = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(sibling, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        sibling.replace(path)
    except BaseException:
        sibling.unlink(missing_ok=True)
        raise


def write_folder_atomic(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a whole folder through a sibling and a rename; an older one is replaced.

    Args:
        folder: the folder to appear.
        files: content by relative POSIX path; the caller has checked that no path leads outside.
    """
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sibling = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        for name, data in files.items():
            target = sibling / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        if folder.exists():
            old = folder.with_name(f".{folder.name}.old-{secrets.token_hex(4)}")
            folder.rename(old)
            sibling.rename(folder)
            shutil.rmtree(old)
        else:
            sibling.rename(folder)
    except BaseException:
        shutil.rmtree(sibling, ignore_errors=True)
        raise
