"""Ask an interpreter what it is made of: version, installed distributions, the folders it needs to start and import.

Runs it isolated (`-I`) in a process of its own, because it is seldom the one we run in. Knows nothing about sandboxes
or records.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge import strictjson
from bridge.errors import InfrastructureError
from bridge.system.process import run

_PROBE_S: Final = 60.0
_OUTPUT_MAX_BYTES: Final = 8 << 20
# Editable installs name their packages in top_level.txt; where those are is asked of the import system itself.
_PROBE: Final = r"""
import importlib.metadata as m, importlib.util as u, json, os, platform, sys
def where(name):
    try:
        spec = u.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    return list(spec.submodule_search_locations or ([spec.origin] if spec.origin else []))
packages, editable = {}, {}
for d in m.distributions():
    name = d.metadata["Name"]
    if not name:
        continue
    packages.setdefault(name, d.version)
    text = d.read_text("direct_url.json")
    if text and json.loads(text).get("dir_info", {}).get("editable"):
        tops = (d.read_text("top_level.txt") or "").split()
        editable[name] = [p for top in tops for p in where(top)]
print(json.dumps({
    "version": platform.python_version(), "implementation": platform.python_implementation(),
    "prefixes": list(dict.fromkeys([sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix])),
    "path": [p for p in sys.path if p and os.path.exists(p)], "packages": packages, "editable": editable,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter says of itself.

    Attributes:
        executable: path as given.
        version: e.g. ``CPython 3.11.7``.
        prefixes: its environment's folder and its installation's.
        path: existing entries of its import path.
        packages: installed distributions and versions.
        editable: by distribution, the package folders an editable install points at.
    """

    executable: str
    version: str
    prefixes: tuple[str, ...]
    path: tuple[str, ...]
    packages: dict[str, str]
    editable: dict[str, tuple[str, ...]]

    @property
    def lock_digest(self) -> str:
        """The sha256 over the canonical list of packages and the interpreter's version."""
        return hashlib.sha256(strictjson.encode({"python": self.version, "packages": self.packages})).hexdigest()


_KNOWN: dict[tuple[str, tuple[int, ...]], Interpreter] = {}


def _fingerprint(folders: tuple[str, ...]) -> tuple[int, ...]:
    """Return the change times of folders; installing or removing a distribution changes one of them."""
    return tuple(Path(folder).stat().st_mtime_ns if Path(folder).exists() else 0 for folder in folders)


def ask(executable: str) -> Interpreter:
    """Return what an interpreter is made of; asked again only after its folders have changed.

    Raises:
        InfrastructureError: it cannot be run, or does not answer like a Python.
    """
    for (known, stamp), interpreter in _KNOWN.items():
        if known == executable and stamp == _fingerprint(interpreter.path):
            return interpreter
    done = run(
        [executable, "-I", "-c", _PROBE],
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        cwd="/",
        timeout_s=_PROBE_S,
        max_output_bytes=_OUTPUT_MAX_BYTES,
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
    interpreter = Interpreter(
        executable=executable,
        version=f"{facts['implementation']} {facts['version']}",
        prefixes=tuple(facts["prefixes"]),
        path=tuple(facts["path"]),
        packages=dict(sorted(facts["packages"].items())),
        editable={name: tuple(folders) for name, folders in facts["editable"].items()},
    )
    for key in [key for key in _KNOWN if key[0] == executable]:
        del _KNOWN[key]
    _KNOWN[executable, _fingerprint(interpreter.path)] = interpreter
    return interpreter
