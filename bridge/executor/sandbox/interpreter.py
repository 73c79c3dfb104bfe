"""Ask interpreters: which folders they need to start and to import, and where a command's module would come from.

The first question runs isolated (`-I`), the second with the command's own flags in its own confinement, before it runs;
nothing of a run's tree is executed.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.errors import InfrastructureError
from bridge.limits import KIB, TEXT_MAX_CHARS
from bridge.records.jobspec import Command
from bridge.records.run import ImportedModule
from bridge.system.process import run

_PROBE_S: Final = 60.0
# Editable installs name their packages in top_level.txt; where those are is asked of the import system itself.
_PROBE: Final = r"""
import importlib.metadata as m, importlib.util as u, json, os, sys
def where(name):
    try:
        spec = u.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))
editable = []
for d in m.distributions():
    text = d.read_text("direct_url.json")
    if text and json.loads(text).get("dir_info", {}).get("editable"):
        editable += [p for top in (d.read_text("top_level.txt") or "").split() for p in where(top)]
print(json.dumps({
    "prefixes": list(dict.fromkeys([sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix])),
    "path": [p for p in sys.path if p and os.path.exists(p)], "editable": editable,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """Where an interpreter is.

    Attributes:
        prefixes: its environment's folder and its installation's.
        path: existing entries of its import path.
        editable: the package folders that editable installs point at.
    """

    prefixes: tuple[str, ...]
    path: tuple[str, ...]
    editable: tuple[str, ...]


_KNOWN: dict[tuple[str, tuple[int, ...]], Interpreter] = {}


def _fingerprint(folders: tuple[str, ...]) -> tuple[int, ...]:
    """Return the change times of folders; installing or removing a distribution changes one of them."""
    return tuple(Path(folder).stat().st_mtime_ns if Path(folder).exists() else 0 for folder in folders)


def ask(executable: str) -> Interpreter:
    """Return where an interpreter is; asked again only after its folders have changed.

    Raises:
        InfrastructureError: it cannot be run, or does not answer like a Python.
    """
    for (program, stamp), interpreter in list(_KNOWN.items()):
        if program == executable and stamp == _fingerprint(interpreter.path):
            return interpreter
    done = run(
        [executable, "-I", "-c", _PROBE],
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        cwd="/",
        timeout_s=_PROBE_S,
    )
    if not done.ok:
        raise InfrastructureError(
            f"the interpreter does not answer: {done.describe()}", remedy="check `interpreter` in policy.toml"
        )
    try:
        facts: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise InfrastructureError(
            f"{executable} does not answer like a Python: {done.stdout[:80]!r}",
            remedy="check `interpreter` in policy.toml",
        ) from error
    interpreter = Interpreter(*(tuple(facts[name]) for name in ("prefixes", "path", "editable")))
    for key in [key for key in list(_KNOWN) if key[0] == executable]:
        _KNOWN.pop(key, None)
    _KNOWN[executable, _fingerprint(interpreter.path)] = interpreter
    return interpreter


ANSWER_MAX_BYTES: Final = 16 * KIB
# Only modules the interpreter has loaded by itself are used: a tree may hold a `json.py` of its own. Finders are asked
# in the order an import asks them. The folder that `-m` puts first is the one that `-c` puts first.
_PROGRAM: Final = """
import sys
os = sys.modules["os"]
found = None
for finder in sys.meta_path:
    spec = finder.find_spec(sys.argv[1], None)
    if spec is not None:
        found = spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), None)
        break
print(ascii((found and os.path.realpath(found), os.path.realpath(os.getcwd()))))
"""


def question(command: Command) -> tuple[Command, str] | None:
    """Return the command that asks, and the top-level module it asks for; None for one that runs no module.

    Args:
        command: interpreter, its flags, ``-m``, a module, and the module's arguments.
    """
    flags: list[str] = []
    for place, word in enumerate(command.argv[1:], start=1):
        if word == "-m" and place + 1 < len(command.argv):
            module = command.argv[place + 1].partition(".")[0]
            argv = (command.argv[0], *flags, "-c", _PROGRAM, module)
            return Command(name="where-from", argv=argv), module
        if not word.startswith("-") or word == "-c":
            return None
        flags.append(word)
    return None


def answer(module: str, text: bytes) -> ImportedModule | None:
    """Return what the asking command found, or None when it found nothing."""
    try:
        path, work = ast.literal_eval(text.decode("ascii").strip().rpartition("\n")[2])
    except (ValueError, SyntaxError, TypeError):
        return None
    if not (isinstance(path, str) and isinstance(work, str)) or max(len(path), len(work)) > TEXT_MAX_CHARS:
        return None
    shown = path.isprintable() and work.isprintable()
    return ImportedModule(module=module, path=path, work=work) if shown else None
