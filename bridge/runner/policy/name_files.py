"""What names may do on this host, a file a name: `names.d/NAME.toml` beside `policy.toml`, read with it.

`kakeya-runner welcome` writes such a file, so that no comment of `policy.toml` is lost. Its keys are those of
``[names."NAME"]``.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Final

import pydantic

from bridge.errors import UsageError
from bridge.records.request import PRINCIPAL_PATTERN
from bridge.runner.policy.names import FiledRules, NameRules
from bridge.runner.policy.rights import file_problems
from bridge.system.durable import write_atomically

FOLDER: Final = "names.d"
_SUFFIX: Final = ".toml"


def name_file(policy_path: Path, name: str) -> Path:
    """Return where the rules of a name lie, beside a policy file."""
    return policy_path.absolute().parent / FOLDER / f"{name}{_SUFFIX}"


def read_name_files(policy_path: Path) -> dict[str, FiledRules]:
    """Return the rules of each name that has a file of its own.

    Raises:
        UsageError: others may change one, it says something that no rules are, or their folder cannot be looked into.
    """
    rules: dict[str, FiledRules] = {}
    for path in _files(policy_path):
        name = path.name.removesuffix(_SUFFIX)
        if problems := file_problems(path):
            raise UsageError(f"rules of a name {path}: {problems[0]}", remedy=f"chmod 600 {shlex.quote(str(path))}")
        if re.fullmatch(PRINCIPAL_PATTERN, name) is None:
            raise UsageError(f"{path}: {name!r} is no name", remedy="call it NAME.toml, e.g. ada@example.org.toml")
        try:
            text = path.read_text("utf-8-sig")
            rules[name] = FiledRules.model_validate_json(json.dumps(tomllib.loads(text)))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole file"
            raise UsageError(f"{path}, {where}: {first['msg']}", remedy='as under [names."NAME"]') from error
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path}: {error}", remedy='as under [names."NAME"]') from error
    return rules


def write_name_file(policy_path: Path, name: str, rules: NameRules) -> Path:
    """Write the rules of a name into a file of its own; return where."""
    path = name_file(policy_path, name)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    lines = ["# What this name may do here; the other keys are those of [names.\"NAME\"] in policy.toml.",
             f"presets = {json.dumps(list(rules.presets), ensure_ascii=False)}",
             f"own_code = {'true' if rules.own_code else 'false'}"]  # fmt: skip
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    return path


def stamp_of(policy_path: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when a rules file is written, added or taken away.

    Raises:
        UsageError: their folder cannot be looked into.
    """
    facts = [(path.name, path.lstat()) for path in _files(policy_path)]
    return tuple((name, fact.st_size, fact.st_mtime_ns, fact.st_ctime_ns) for name, fact in facts)


def _files(policy_path: Path) -> list[Path]:
    """Return the files of rules; without rules a name may more, so one that cannot be seen is no reason for none.

    Raises:
        UsageError: their folder cannot be looked into.
    """
    folder = policy_path.absolute().parent / FOLDER
    if not os.path.lexists(folder):
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIX))
    except OSError as error:
        remedy = f"chmod 700 {shlex.quote(str(folder))}, as the runner's own folder; or move it away"
        raise UsageError(f"rules of names {folder}: {error.strerror}", remedy=remedy) from error
