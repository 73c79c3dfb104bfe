"""The pages of `docs/gate/`: one a rule, the index, the numbers."""

from __future__ import annotations

from bridge.gate.catalogue import pages


def generate() -> dict[str, str]:
    """Return the pages by path."""
    return {f"docs/gate/{name}": text for name, text in pages().items()}
