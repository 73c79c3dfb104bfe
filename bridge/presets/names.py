"""The names of the installed presets: a preset is named as its file is, so none is read for them."""

from __future__ import annotations

from pathlib import Path


def installed_names() -> tuple[str, ...]:
    """Return the names of the installed presets, sorted."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.toml")))
