"""Check that the models which presets run are here, with their weights: where a run looks, and what to do where not.

Reads names of files only; what is in them is the engine's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from bridge.diagnostics import Check
from bridge.presets.model import Preset
from bridge.runner.machine.models import find_model
from bridge.runner.policy.model import Policy

_SHIPPED: Final = "kakeya-engine assets add CLONE, the folder of a clone of this version"
_OWN: Final = "put it, with its weights, into a folder of model_roots in policy.toml"


def check_models(policy: Policy, presets: Iterable[Preset], engine: Path | None) -> Iterator[Check]:
    """Yield whether the policy's models are found, and those that presets name where the policy names none.

    Args:
        policy: of this host.
        presets: those that may run here.
        engine: folder of the engine's package, None where there is none.
    """
    for name in filter(None, (policy.target, policy.drafter)):
        found = find_model(name, policy.model_roots, engine)
        remedy = None if found else "set model_roots, target and drafter in policy.toml"
        yield Check("model", "ok" if found else "fail", f"{name}: {found or 'not found'}", remedy)
    for name, count in sorted(Counter(name for one in presets for name in _own_models(policy, one)).items()):
        found = find_model(name, policy.model_roots, engine)
        needed = f"{count} allowed preset{'' if count == 1 else 's'} need{'s' if count == 1 else ''} it"
        if found is not None and any(found.glob("model*.safetensors")):
            yield Check("model", "ok", f"{name}: {needed}")
            continue
        shipped = engine is not None and found == engine / "assets" / name
        what = "not found" if found is None else "no weights"
        yield Check("model", "warn", f"{name}: {what}, {needed}", _SHIPPED if shipped else _OWN)


def _own_models(policy: Policy, preset: Preset) -> Iterator[str]:
    """Yield the models that runs of a preset take from the preset; a host's target leaves out its drafter too."""
    if preset.models.target is not None and not policy.target:
        yield preset.models.target
    if preset.models.drafter is not None and not policy.target and not policy.drafter:
        yield preset.models.drafter
