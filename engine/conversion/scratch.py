"""Folders beside models that are there for a while: whoever is killed meanwhile, the next one removes what was left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = ".kakeya-scratch-"
"""What the name of such a folder begins with, and of no folder of anybody else: what begins so is removed."""


@contextmanager
def scratch(root: Path) -> Iterator[Path]:
    """Yield a new folder in ``root``, which is gone afterwards unless it was moved.

    It is locked as long as this process has it, and that ends with the process, however it ends.

    Raises:
        OSError: If it cannot be made.
    """
    with ExitStack() as stack:
        with _lock(root, fcntl.LOCK_EX):  # nobody sweeps before the new one is locked
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.enter_context(_lock(folder, fcntl.LOCK_EX))
        yield folder


def sweep(root: Path) -> None:
    """Remove what processes left in ``root`` that are no more.

    Raises:
        OSError: If the root cannot be read.
    """
    with _lock(root, fcntl.LOCK_EX):
        for folder in sorted(root.glob(f"{PREFIX}*")):
            if folder.is_dir() and not folder.is_symlink():
                with _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_free:
                    if is_free:
                        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _lock(folder: Path, how: int) -> Iterator[bool]:
    """Lock a folder; yield whether that went: somebody else may have it, or its file system may know no locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, how)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
