"""Say everything that is wrong with a policy file, each with what to do about it.

`load_policy` stops at the first problem, because a runner must not start; an owner wants to see them all.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import os
import pwd
import stat
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pydantic

from bridge.errors import KakeyaError
from bridge.runner.policy.allow_lists import REMEDY, exposures
from bridge.runner.policy.file import Policy, file_problems, own_presets

_TYPES = {"env": "environment", "schema": "schema_version"}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        where: the key, dotted, or `file`.
        grave: whether the runner refuses to start with it.
    """

    where: str
    text: str
    remedy: str
    grave: bool = True


def problems(path: Path) -> Iterator[Problem]:
    """Yield what is wrong with a policy file, graver things first."""
    for text in file_problems(path):
        remedy = f"chmod 600 {path}" if path.exists() else "kakeya-runner setup"
        yield Problem("file", text, remedy)
    try:
        data = path.read_bytes()
    except OSError:
        return
    found = list(content_problems(data))
    yield from found
    if not found:
        policy = Policy.model_validate_json(json.dumps(tomllib.loads(data.decode())))
        for key, text in exposures(policy, (str(path),)):
            yield Problem(key, text, REMEDY)
        yield from _about_this_machine(policy)


def content_problems(data: bytes) -> Iterator[Problem]:
    """Yield every unknown key and every value a policy cannot have."""
    try:
        value = tomllib.loads(data.decode("utf-8"))
    except (ValueError, tomllib.TOMLDecodeError) as error:
        yield Problem("file", f"not TOML: {error}", "kakeya-runner policy example shows the form")
        return
    try:
        Policy.model_validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        for one in error.errors():
            where = tuple(part for part in one["loc"] if not str(part).startswith(("tuple[", "function-")))
            dotted = ".".join(map(str, where)) or "the whole file"
            if one["type"] == "extra_forbidden":
                yield Problem(dotted, "unknown key", _nearest(where))
            elif one["type"] == "missing":
                yield Problem(dotted, "missing", f"add {where[-1]} = … ; kakeya-runner policy example")
            else:
                yield Problem(dotted, f"{one['msg']}; got {_shown(one['input'])}", _form(where))
    except TypeError as error:
        yield Problem("file", f"holds a value no policy has: {error}", "kakeya-runner policy example shows the form")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _nearest(where: tuple[Any, ...]) -> str:
    known = _keys(where[:-1])
    near = difflib.get_close_matches(str(where[-1]), known, n=1)
    return f"did you mean {near[0]}?" if near else f"remove it; known here: {', '.join(known) or 'nothing'}"


def _keys(where: tuple[Any, ...]) -> list[str]:
    """Return the keys of a table of the policy."""
    model: Any = Policy
    for part in where:
        if isinstance(part, int):
            continue
        field = getattr(model, "model_fields", {}).get(_TYPES.get(str(part), str(part)))
        model = None if field is None else next(_models(field.annotation), None)
    fields = getattr(model, "model_fields", {})
    return sorted(field.alias or name for name, field in fields.items())


def _models(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _form(where: tuple[Any, ...]) -> str:
    """Return the example's own line for a key, or where to look."""
    from importlib import resources

    text = resources.files("bridge.runner.policy").joinpath("policy_template.toml").read_text("utf-8")
    names = [str(part) for part in where if not isinstance(part, int)]
    for line in text.splitlines() if names else ():
        if line.removeprefix("# ").startswith(f"{names[-1]} = "):
            return f"as in: {line.removeprefix('# ').strip()}"
    return "kakeya-runner policy example shows the form"


def _about_this_machine(policy: Policy) -> Iterator[Problem]:
    """Yield what is a policy, but not one for this machine."""
    yield from _programs(policy)
    for key, paths in (("model_roots", policy.model_roots), ("sandbox.read_only", policy.sandbox.read_only)):
        for path in paths:
            if not Path(path).is_dir():
                yield Problem(key, f"{path} is no folder", "make it, or take it out", grave=False)
    for path in policy.sandbox.devices:
        if not _is(path, stat.S_ISCHR):
            yield Problem("sandbox.devices", f"{path} is no device node", "ls -l /dev; take it out", grave=False)
    for key, uid in (("sandbox.uid", policy.sandbox.uid), ("sandbox.peer_uid", policy.sandbox.peer_uid)):
        if uid is not None:
            yield from _user(key, uid)
    try:
        names = list(own_presets(policy))
    except KakeyaError as error:
        yield Problem("presets.folder", error.message, error.remedy or "look at the preset file")
        return
    for pattern in policy.presets.allow:
        if not fnmatch.filter(names, pattern):
            near = difflib.get_close_matches(pattern, names, n=1)
            remedy = f"did you mean {near[0]}?" if near else "kakeya-mac presets lists the names"
            yield Problem("presets.allow", f"{pattern!r} matches no preset", remedy, grave=False)


def _programs(policy: Policy) -> Iterator[Problem]:
    if not os.access(policy.interpreter, os.X_OK):
        yield Problem("interpreter", f"{policy.interpreter} cannot be run", "name a Python that has kakeya installed")
    for key, argv in (("approval", policy.approval), ("actions.stop", policy.actions.stop)):
        if argv and not os.access(argv[0], os.X_OK):
            yield Problem(key, f"{argv[0]} cannot be run", f"chmod +x {argv[0]}, or name another program")


def _user(key: str, uid: int) -> Iterator[Problem]:
    if os.geteuid() not in (0, uid):
        text = f"this runner is uid {os.geteuid()} and cannot become uid {uid}"
        yield Problem(key, text, f"run the runner as root, or leave {key} out")
    try:
        pwd.getpwuid(uid)
    except KeyError:
        yield Problem(key, f"no user has uid {uid}", "make one without rights of its own", grave=False)


def _is(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(Path(path).stat().st_mode)
    except OSError:
        return False
