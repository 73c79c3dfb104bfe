"""Ask an interpreter where it is: the folders it needs to start and to import.

Runs it isolated (`-I`) in a process of its own, because it is seldom the one we run in. Knows nothing about sandboxes
or records.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.errors import InfrastructureError
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
    for (known, stamp), interpreter in list(_KNOWN.items()):
        if known == executable and stamp == _fingerprint(interpreter.path):
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
