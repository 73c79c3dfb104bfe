"""Load preset files into a registry; adding a preset is adding a file.

Knows where preset files are and that their name is their preset's; not what they mean.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from types import MappingProxyType

import pydantic

from bridge.errors import PresetNotFoundError, UsageError
from bridge.presets.model import Preset


def load(name: str, data: bytes) -> Preset:
    """Return the preset of a TOML file.

    Args:
        name: the file's name without ``.toml``.
        data: its bytes.

    Raises:
        UsageError: not TOML, of another shape, or named differently from its file.
    """
    try:
        preset = Preset.model_validate_json(json.dumps(tomllib.loads(data.decode("utf-8"))))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise UsageError(f"preset file {name}.toml, {where}: {first['msg']}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"preset file {name}.toml: {error}") from error
    if preset.workload is not None or preset.read_only:
        raise UsageError(
            f"preset file {name}.toml: workload and read_only are for workload folders",
            remedy=f"kakeya-runner workload new {name}",
        )
    if preset.name != name:
        raise UsageError(f"preset file {name}.toml says name = {preset.name!r}; a preset is named as its file is")
    return preset


@lru_cache(maxsize=1)
def registry() -> Mapping[str, Preset]:
    """Return the installed presets by name, sorted; read once.

    Raises:
        UsageError: an installed preset file is broken.
    """
    return _read(resources.files("bridge.presets").iterdir())


def find(name: str, presets: Mapping[str, Preset] | None = None) -> Preset:
    """Return a preset by name.

    Raises:
        PresetNotFoundError: there is none.
    """
    available = registry() if presets is None else presets
    if name not in available:
        raise PresetNotFoundError(name, tuple(available))
    return available[name]


def _read(files: Iterable[Traversable]) -> Mapping[str, Preset]:
    contents = {
        entry.name.removesuffix(".toml"): entry.read_bytes()
        for entry in files
        if entry.name.endswith(".toml") and entry.is_file()
    }
    return MappingProxyType({name: load(name, contents[name]) for name in sorted(contents)})
