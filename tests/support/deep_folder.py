"""Folders in one another that no path reaches and no recursion leaves."""

from __future__ import annotations

import os
from pathlib import Path

LEVELS = 1100


def make_deep(top: Path) -> None:
    """Make folders in one another, each with a file, as a program does that works its way down."""
    folder = os.open(top, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("down", dir_fd=folder)
        inner = os.open("down", os.O_RDONLY, dir_fd=folder)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.close(folder)
        folder = inner
    os.close(folder)
