"""Check that the models which presets run are here, with their weights: where a run looks, and what to do where not.

Reads names of files only; what is in them is the engine's to say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from bridge.diagnostics import Check
from bridge.presets.model import Preset
from bridge.runner.machine.models import find_model
from bridge.runner.policy.model import Policy

_SHIPPED: Final = "kakeya-engine assets add CLONE, the folder of a clone of this version"
_NAMED: Final = "set model_roots, target and drafter in policy.toml"
_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_POINTER_MAX_BYTES: Final = 1024
_WEIGHTS: Final = ("*.safetensors", "*.gguf", "*.npz")
_NO_FOLDERS: Final = frozenset({"auto", "mtp", "ngram", "none"})
"""Drafters that need no folder of their own, by the names that the engine has for them."""
_ELSEWHERE: Final = "grpc:"
_OWN: Final = "put it, with its weights, into a folder of model_roots in policy.toml"


def check_models(policy: Policy, presets: Iterable[Preset], engine: Path | None) -> Iterator[Check]:
    """Yield whether the policy's models are found, and those that presets name where the policy names none.

    Args:
        policy: of this host.
        presets: those that may run here.
        engine: folder of the engine's package, None where there is none.
    """
    for name in filter(None, (policy.target, *_folders(policy.drafter))):
        found = find_model(name, policy.model_roots, engine)
        wrong = "not found" if found is None else what_is_missing(found)
        remedy = None if wrong is None else _NAMED if found is None else _OWN
        yield Check("model", "fail" if wrong else "ok", f"{name}: {wrong or found}", remedy)
    for name, count in sorted(Counter(name for one in presets for name in _own_models(policy, one)).items()):
        found = find_model(name, policy.model_roots, engine)
        needed = f"{count} allowed preset{'' if count == 1 else 's'} need{'s' if count == 1 else ''} it"
        if found is not None and any(found.glob("model*.safetensors")):
            yield Check("model", "ok", f"{name}: {needed}")
            continue
        shipped = engine is not None and found == engine / "assets" / name
        what = "not found" if found is None else "no weights"
        yield Check("model", "warn", f"{name}: {what}, {needed}", _SHIPPED if shipped else _OWN)


def _folders(drafter: str | None) -> Iterator[str]:
    """Yield the drafters that lie in folders, of one or of several between commas."""
    for name in (drafter or "").split(","):
        if name and name not in _NO_FOLDERS and not name.startswith(_ELSEWHERE):
            yield name


def what_is_missing(folder: Path) -> str | None:
    """Return what a model's folder lacks, None where it has its configuration and all of its weights."""
    if not (folder / "config.json").is_file():
        return f"{folder} has no config.json"
    if partial := next(iter(sorted(folder.glob("*.incomplete"))), None):
        return f"{partial} is half of a download"
    return _missing_weights(folder)


def _missing_weights(folder: Path) -> str | None:
    """Return which weights a folder lacks: files that its index lists, or what a pointer of git-lfs stands for."""
    weights = [path for pattern in _WEIGHTS for path in sorted(folder.glob(pattern))]
    index = folder / "model.safetensors.index.json"
    listed: set[str] = set()
    if index.is_file():
        try:
            listed = {str(name) for name in json.loads(index.read_bytes())["weight_map"].values()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return f"{index} is no index of weights"
    if absent := sorted(name for name in listed if not (folder / name).is_file()):
        return f"{folder} lacks {len(absent)} of {len(listed)} files of weights, e.g. {absent[0]}"
    if not weights:
        return f"{folder} has no weights"
    small = (path for path in weights if path.stat().st_size < _POINTER_MAX_BYTES)
    pointer = next((path for path in small if path.read_bytes().startswith(_POINTER)), None)
    return None if pointer is None else f"{pointer} is a pointer of git-lfs: git lfs pull"


def _own_models(policy: Policy, preset: Preset) -> Iterator[str]:
    """Yield the models that runs of a preset take from the preset; a host's target leaves out its drafter too."""
    if preset.models.target is not None and not policy.target:
        yield preset.models.target
    if preset.models.drafter is not None and not policy.target and not policy.drafter:
        yield preset.models.drafter
