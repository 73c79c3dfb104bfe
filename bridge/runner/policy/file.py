"""Read the owner's policy file: strict, readable by the owner alone, with safe defaults."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Container, Mapping
from pathlib import Path

import platformdirs
import pydantic

from bridge.errors import UsageError
from bridge.presets.installed import load, registry
from bridge.presets.model import Preset
from bridge.records.base import NAME_PATTERN
from bridge.runner.policy.allow_lists import refuse_exposed_lists
from bridge.runner.policy.model import Policy
from bridge.runner.policy.name_files import FOLDER, name_file, read_name_files
from bridge.runner.policy.rights import file_problems
from bridge.runner.policy.trust import TrustPolicy
from bridge.runner.policy.workloads import offered

# Trusted keys lie beside the policy unless it says otherwise; `kakeya-runner trust` and `revoke` write them.
TRUST_FILES = ("allowed_signers", "code_signers", "revoked")
WORKLOADS_FILE = "workloads"


ADDED_MODELS = "kakeya-models"
"""Where in the home folder `kakeya-engine models add` puts models unless told otherwise."""
# Of its own machine's owner the embedded runner takes these over; a served bus takes nothing from its environment.
EMBEDDED_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_TEXT_LINE = re.compile(r"""^\s*(\w+)\s*=\s*["']([^"'\n]*)["']""", re.MULTILINE)
_TABLE_LINE = re.compile(r"^\s*\[[^\n]*\]\s*(?:#|$)", re.MULTILINE)

_EMBEDDED_NAMES = {
    "sandbox": "KAKEYA_ENDPOINT",
    "target": "KAKEYA_TARGET",
    "drafter": "KAKEYA_DRAFTER",
    "model_roots": "KAKEYA_MODEL_ROOTS",
}


def read_policy(data: bytes, *, source: str = "policy.toml") -> Policy:
    """Return the policy of TOML bytes.

    Raises:
        UsageError: not TOML, an unknown or repeated key, or a value out of its bounds.
    """
    try:
        value = tomllib.loads(data.decode("utf-8-sig"))  # an editor may begin with a mark
        return Policy.model_validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole file"
        raise UsageError(f"{source}, {where}: {first['msg']}", remedy="kakeya-runner policy check") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{source}: {error}", remedy="kakeya-runner policy check") from error


def load_policy(path: Path) -> Policy:
    """Return the policy of a file only its owner can read or change.

    Raises:
        UsageError: absent, a link, of another owner, open to others, not a policy, or one whose lists show runs
            private paths.
    """
    problems = file_problems(path)
    if problems:
        there = path.exists() or path.is_symlink()
        repair = (
            f"chmod 600 {shlex.quote(str(path))}; kakeya-runner policy check"
            if there
            else "kakeya-runner setup --bus ROUTE"
        )
        raise UsageError(f"policy file {path}: {problems[0]}", remedy=repair)
    policy = read_policy(path.read_bytes(), source=str(path))
    refuse_exposed_lists(policy, (str(path),))
    beside = {name: str(path.absolute().parent / name) for name in (*TRUST_FILES, WORKLOADS_FILE)
              if getattr(policy, name) is None}  # fmt: skip
    named = read_name_files(path)
    if twice := sorted(named.keys() & policy.names.keys()):
        remedy = f'take one out: [names."{twice[0]}"], or {name_file(path, twice[0])}'
        raise UsageError(f"{path} and {FOLDER} both say what {twice[0]} may do", remedy=remedy)
    return policy.model_copy(update={**beside, "names": {**policy.names, **named}})


def written_name(path: Path) -> str | None:
    """Return the name that a policy file gives its runner, also a file that is no policy; None where it gives none."""
    name = _written(path).get("name")
    return name if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name) else None


def written_lists(path: Path) -> TrustPolicy:
    """Return what a policy file says of its lists of keys, also a file that is no policy.

    What makes no sense is left out; of a file that is no TOML, so are the keys that it lists itself.
    """
    written = _written(path)
    given: dict[str, object] = {}
    for name in TRUST_FILES:
        value = written.get(name)
        given[name] = [entry for entry in value if _fits(name, [entry])] if isinstance(value, list) else value
    fitting = {name: value for name, value in given.items() if _fits(name, value)}
    return TrustPolicy.model_validate_json(json.dumps(fitting, default=str))


def _fits(name: str, value: object) -> bool:
    """Return whether a key of a policy may have a value."""
    try:
        TrustPolicy.model_validate_json(json.dumps({name: value}, default=str))
    except pydantic.ValidationError:
        return False
    return True


def _written(path: Path) -> Mapping[str, object]:
    """Return the values of a policy file by key; of one that is no TOML the texts above its first table."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "replace")
    except OSError:
        return {}
    try:
        return tomllib.loads(text)
    except ValueError:
        lines = _TEXT_LINE.findall(_TABLE_LINE.split(text, maxsplit=1)[0])
        return dict(reversed(lines))  # of two lines the first counts


def own_presets(policy: Policy) -> dict[str, Preset]:
    """Return the installed presets, those of the owner's folder, and those of the workloads that the owner allowed.

    Raises:
        UsageError: a file of the folder is not the owner's alone, is no preset, or repeats an installed name; or a
            workload has a mistake.
    """
    presets = installed_presets(policy)
    if policy.workloads is not None:
        presets.update(offered(Path(policy.workloads), policy.interpreter, presets))
    return presets


def installed_presets(policy: Policy) -> dict[str, Preset]:
    """Return the installed presets and those of the owner's folder of preset files.

    Raises:
        UsageError: a file of the folder is not the owner's alone, is no preset, or repeats an installed name.
    """
    presets = dict(registry())
    if policy.presets.folder is not None:
        _add_folder(presets, Path(policy.presets.folder))
    return presets


def _add_folder(presets: dict[str, Preset], folder: Path) -> None:
    for path in sorted(folder.glob("*.toml")):
        presets[path.stem] = preset_in(path, presets)


def preset_in(path: Path, taken: Container[str]) -> Preset:
    """Return the preset of one file of the owner's folder.

    Args:
        path: the file.
        taken: names that it may not have.

    Raises:
        UsageError: it is not the owner's alone, is no preset, or repeats an installed name.
    """
    problems = file_problems(path)
    if problems:
        raise UsageError(f"preset file {path}: {problems[0]}", remedy=f"chmod 600 {shlex.quote(str(path))}")
    if path.stem in taken:
        raise UsageError(f"preset file {path} repeats the name of an installed preset", remedy="rename it")
    return load(path.stem, path.read_bytes())


def owner_folder(environment: Mapping[str, str]) -> Path:
    """Return where this account keeps the keys with which it owns buses; no runner has to read it."""
    import platformdirs

    named = environment.get("KAKEYA_OWNER_DIR")
    return Path(named) if named else Path(platformdirs.user_config_path("kakeya")) / "owner"


def builtin_policy(environment: Mapping[str, str], interpreter: str = sys.executable) -> Policy:
    """Return the policy of the embedded runner: its requester owns the machine, so every preset is allowed.

    Workloads are those of the user's config folder, once `kakeya-runner workload allow` has named them; models are also
    those that `kakeya-engine models add` made in the home folder, which runs have another of.

    Args:
        environment: of the requester; only model choices, thread settings and an endpoint are taken over.
        interpreter: absolute path of the Python that runs the engine.

    Raises:
        UsageError: a variable holds what no policy may.
    """
    own = {name: environment[name] for name in EMBEDDED_VARIABLES if environment.get(name)}
    roots = [root for root in environment.get("KAKEYA_MODEL_ROOTS", "").split(os.pathsep) if root.startswith("/")]
    added = Path.home() / ADDED_MODELS
    roots += [str(added)] if added.is_dir() and str(added) not in roots else []
    value = {
        "schema": 1,
        "name": "embedded",
        "trust_pushers": True,
        "interpreter": interpreter,
        "model_roots": roots,
        "target": environment.get("KAKEYA_TARGET") or None,
        "drafter": environment.get("KAKEYA_DRAFTER") or None,
        "rate_per_hour": 0,
        "sandbox": {"endpoints": [endpoint] if (endpoint := environment.get("KAKEYA_ENDPOINT")) else []},
        "env": own,
        "workloads": str(platformdirs.user_config_path("kakeya").absolute() / WORKLOADS_FILE),
    }
    try:
        return Policy.model_validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        part = str(first["loc"][0])
        name = _EMBEDDED_NAMES.get(part) or str(first["loc"][-1])
        remedy = "unset it, or name a socket: unix:/PATH" if part == "sandbox" else f"unset {name}, or name another"
        raise UsageError(f"{name}={environment.get(name, '')!r}: {first['msg']}", remedy=remedy) from error
