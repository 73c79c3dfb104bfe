"""The version of this program: a command need not search the installation for it, which takes longer than it does."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
