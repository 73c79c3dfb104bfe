"""The gate's thresholds as data: every number with its reason.

`smoke.toml` and `claim.toml` hold all numbers of the two measuring profiles. A preset's gate profile is a file of its
own that overrides some of them for what the preset does (`probe`, `tests`), or `default`, which overrides none.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

MEASURING: Final = ("smoke", "claim")


def names() -> tuple[str, ...]:
    """Return the names a preset may use as its gate profile."""
    return tuple(sorted(item.name[:-5] for item in files(__name__).iterdir() if item.name.endswith(".toml")))


@cache
def named(gate_profile: str, measuring: str) -> Mapping[str, Any]:
    """Return threshold name to value, with ``name`` (of the measuring profile) and ``gate_profile``.

    Raises:
        KeyError: no such profile.
    """
    values = {key: entry["value"] for key, entry in {**_document(measuring), **_overrides(gate_profile)}.items()}
    return MappingProxyType({**values, "name": measuring, "gate_profile": gate_profile})


def reasons(name: str) -> dict[str, tuple[Any, str]]:
    """Return each number of a profile with why it is what it is.

    Raises:
        KeyError: no such profile.
    """
    return {key: (entry["value"], str(entry["why"])) for key, entry in _document(name).items()}


def _overrides(gate_profile: str) -> Mapping[str, Any]:
    return {} if gate_profile in MEASURING else _document(gate_profile)


@cache
def _document(name: str) -> Mapping[str, Any]:
    if name not in names():
        raise KeyError(name)
    return tomllib.loads(files(__name__).joinpath(f"{name}.toml").read_text("utf-8"))
