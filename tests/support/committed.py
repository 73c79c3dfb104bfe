"""The committed short runs, for tests that read a result as the bridge published it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bridge.client.clone.packed import SUFFIX, read_packed

EVIDENCE: Final = Path(__file__).resolve().parents[2] / "docs" / "evidence"
SMOKE: Final = EVIDENCE / f"k3-fused-allmlx-code-smoke{SUFFIX}"
SMOKE_AGAIN: Final = EVIDENCE / f"k3-fused-allmlx-code-smoke-again{SUFFIX}"
"""The same question, asked once more on the same machine."""


def unpacked(packed: Path, folder: Path) -> Path:
    """Write a packed result into a new folder and return it."""
    for name, data in read_packed(packed).files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder
