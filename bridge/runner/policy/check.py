"""Say everything that is wrong with a policy file, each with what to do about it.

`load_policy` stops at the first problem, because a runner must not start; an owner wants to see them all.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import os
import pwd
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pydantic
import pydantic_core

from bridge.diagnostics import Check
from bridge.errors import KakeyaError, UsageError
from bridge.presets.model import Preset
from bridge.records.network import describe_network, lesser
from bridge.runner.policy.allow_lists import REMEDY, exposures
from bridge.runner.policy.file import own_presets
from bridge.runner.policy.model import Policy
from bridge.runner.policy.name_files import FOLDER, read_name_files
from bridge.runner.policy.rights import file_problems

EXAMPLE: Final = "kakeya-runner policy example shows the form"
_PATTERNS: Final = {
    r"^/[^\x00-\x1f]*$": "an absolute path",
    r"^(journald|syslog|/[^\x00-\x1f]+)$": "journald, syslog or an absolute path",
    r"^(idle|ac_power|hours-([01]\d|2[0-3])-([01]\d|2[0-3]))$": "idle, ac_power or hours-HH-HH",
    r"^hours-([01]\d|2[0-3])-([01]\d|2[0-3])$": "hours-HH-HH, such as hours-22-06",
}
_CHOSEN: Final = frozenset({"names", "params"})
_TYPES = {"env": "environment", "schema": "schema_version"}


def problems(path: Path) -> Iterator[Check]:
    """Yield what is wrong with a policy file, graver things first."""
    for text in file_problems(path):
        remedy = f"chmod 600 {shlex.quote(str(path))}" if path.is_file() else "kakeya-runner setup"
        yield Check("file", "fail", text, remedy)
    try:
        data = path.read_bytes()
    except OSError:
        return
    found = list(content_problems(data))
    yield from found
    if not found:
        try:
            read_name_files(path)
        except UsageError as error:
            yield Check(FOLDER, "fail", error.message, error.remedy)
        policy = Policy.model_validate_json(json.dumps(tomllib.loads(data.decode("utf-8-sig"))))
        for key, text in exposures(policy, (str(path),)):
            yield Check(key, "fail", text, REMEDY)
        yield from _about_this_machine(policy)


def content_problems(data: bytes) -> Iterator[Check]:
    """Yield every unknown key and every value a policy cannot have."""
    try:
        value = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, tomllib.TOMLDecodeError) as error:
        yield Check("file", "fail", f"not TOML: {error}", EXAMPLE)
        return
    try:
        Policy.model_validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        for one in error.errors():
            where = tuple(part for part in one["loc"] if not str(part).startswith(("tuple[", "function-")))
            dotted = ".".join(map(str, where)) or "the whole file"
            if one["type"] == "extra_forbidden":
                yield Check(dotted, "fail", "unknown key", _nearest(where))
            elif one["type"] == "missing":
                yield Check(dotted, "fail", "missing", f"add {where[-1]} = … ; kakeya-runner policy example")
            else:
                yield Check(dotted, "fail", _reason(one), _form(where))
    except TypeError as error:
        yield Check("file", "fail", f"holds a value no policy has: {error}", EXAMPLE)


def _reason(error: pydantic_core.ErrorDetails) -> str:
    """Return what is wrong with a value; of a whole table only what contradicts itself."""
    text = error["msg"].removeprefix("Value error, ")
    pattern = error.get("ctx", {}).get("pattern")
    if pattern in _PATTERNS:
        text = f"expected {_PATTERNS[pattern]}"
    return text if isinstance(error["input"], dict) else f"{text}; got {_shown(error['input'])}"


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
    named = False  # whether this part is a name that somebody chose: [names."ada"] and its like
    for part in where:
        if isinstance(part, int) or named:
            named = False
            continue
        named = part in _CHOSEN
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
    return EXAMPLE


def _about_this_machine(policy: Policy) -> Iterator[Check]:
    """Yield what is a policy, but not one for this machine."""
    yield from _programs(policy)
    for key, paths in (("model_roots", policy.model_roots), ("sandbox.read_only", policy.sandbox.read_only)):
        for path in paths:
            if not Path(path).is_dir():
                yield Check(key, "warn", f"{path} is no folder", "make it, or take it out")
    yield from _nodes(policy)
    for key, uid in (("sandbox.uid", policy.sandbox.uid), ("sandbox.peer_uid", policy.sandbox.peer_uid)):
        if uid is not None:
            yield from _user(key, uid)
    try:
        presets = own_presets(policy)
    except KakeyaError as error:
        yield Check("presets.folder", "fail", error.message, error.remedy or "look at the preset file")
        return
    yield from networks(policy, presets.values())
    for pattern in policy.presets.allow:
        if not fnmatch.filter(presets, pattern):
            near = difflib.get_close_matches(pattern, presets, n=1)
            remedy = f"did you mean {near[0]}?" if near else "kakeya-mac presets lists the names"
            yield Check("presets.allow", "warn", f"{pattern!r} matches no preset", remedy)


def networks(policy: Policy, presets: Iterable[Preset]) -> Iterator[Check]:
    """Yield the presets that may run and ask for more of a network than the policy gives."""
    given, allows = policy.sandbox.network, policy.facts(embedded=False).allows
    for preset in presets:
        need = preset.sandbox.network
        if preset.status == "ready" and allows(preset.name) and lesser(need, given) != need:
            text = f"{preset.name} asks for {describe_network(need)}; this policy gives {describe_network(given)}"
            remedy = f"network = {json.dumps(need)} in [sandbox], or more, if it may"
            yield Check("sandbox.network", "warn", text, remedy)


def _programs(policy: Policy) -> Iterator[Check]:
    if not os.access(policy.interpreter, os.X_OK):
        yield Check(
            "interpreter", "fail", f"{policy.interpreter} cannot be run", "name a Python that has kakeya installed"
        )
    for key, argv in (
        ("approval", policy.approval),
        ("notify", policy.notify),
        ("actions.stop", policy.actions.stop),
    ):
        if argv and not os.access(argv[0], os.X_OK):
            remedy = f"chmod +x {shlex.quote(argv[0])}, or name another program"
            yield Check(key, "fail", f"{argv[0]} cannot be run", remedy)


def _user(key: str, uid: int) -> Iterator[Check]:
    if os.geteuid() not in (0, uid):
        text = f"this runner is uid {os.geteuid()} and cannot become uid {uid}"
        yield Check(key, "fail", text, f"run the runner as root, or leave {key} out")
    try:
        pwd.getpwuid(uid)
    except KeyError:
        yield Check(key, "warn", f"no user has uid {uid}", "make one without rights of its own")


def _nodes(policy: Policy) -> Iterator[Check]:
    """Yield devices and sockets that are none."""
    for path in policy.sandbox.devices:
        if not _is(path, stat.S_ISCHR):
            yield Check("sandbox.devices", "warn", f"{path} is no device node", "ls -l /dev; take it out")
    for endpoint in policy.sandbox.endpoints:
        if not _is(endpoint.removeprefix("unix:"), stat.S_ISSOCK):
            yield Check(
                "sandbox.endpoints", "warn", f"{endpoint}: nothing listens there", "start ssh -L, or take it out"
            )


def _is(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(Path(path).stat().st_mode)
    except OSError:
        return False
