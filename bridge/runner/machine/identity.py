"""Which code this host runs: interpreter, packages, and a name for the engine's exact sources.

Asks the interpreter itself, isolated, because it may be another one than ours. `unknown` is an answer; a guess is not.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridge import strictjson
from bridge.errors import GitError, InfrastructureError
from bridge.executor.interface import Execution
from bridge.presets.workloads.digests import again
from bridge.records.jobspec import JobSpec
from bridge.records.request import Request
from bridge.records.run import CodeRecord
from bridge.records.workload import WorkloadDefinition
from bridge.runner.machine.packages import beside_engine
from bridge.system.clock import SystemClock
from bridge.system.git import run_in_work_tree
from bridge.system.process import run

_ASK_WALL_S = 60.0
_CLOCK = SystemClock()
_PACKAGES = ("bridge", "engine")
_NO_SOURCES = frozenset({"__pycache__", "assets"})
_ASK = """
import email.parser, importlib.metadata as m, importlib.util as u, json, os, platform, site, sys
packages = {}
for d in m.distributions():
    # Each d.name and d.version parses the whole file anew, and most of a file is a readme.
    text = d.read_text("METADATA") or d.read_text("PKG-INFO") or ""
    head = email.parser.HeaderParser().parsestr(text.partition("\\n\\n")[0])
    if head["Name"]:
        packages.setdefault(head["Name"].lower().replace("_", "-"), head["Version"])
found = {}
for name in ("bridge", "engine"):
    spec = u.find_spec(name)
    found[name] = list(spec.submodule_search_locations)[0] if spec and spec.submodule_search_locations else None
try:
    record = str(m.distribution("kakeya").locate_file(""))
    files = m.distribution("kakeya").read_text("RECORD")
    url = json.loads(m.distribution("kakeya").read_text("direct_url.json") or "{}")
    editable = bool(url.get("dir_info", {}).get("editable"))
except m.PackageNotFoundError:
    record, files, editable = None, None, False
sites = [p for p in dict.fromkeys(site.getsitepackages()) if p in sys.path]
sites = list({os.path.realpath(p): p for p in reversed(sites)}.values())[::-1]
library = os.path.dirname(os.__file__)
own = {library, os.path.join(library, "lib-dynload"), *sites}
strange = [p for p in dict.fromkeys(sys.path) if p not in own and os.path.exists(p)]
print(json.dumps({"python": platform.python_version(), "packages": packages, "found": found, "site": record,
                  "record": files, "editable": editable, "sites": sites, "strange": strange}))
"""


@dataclass(frozen=True)
class CodeFacts:
    """The host's code.

    Attributes:
        identity: commit of a checkout, digest of a wheel's record, digest of the sources, or ``unknown``.
        dirty: whether the files differ from that; None when that cannot be told.
        engine: folder of the installed engine package, or None when the interpreter has none.
        sites: the folders where packages are installed.
        strange: other places where Python looks for modules, neither its own library nor the engine's folder; of an
            editable engine's, what else Python would import from there.
        problem: why the interpreter could not be asked, or None.
    """

    identity: str
    dirty: bool | None
    interpreter: str
    version: str
    packages: dict[str, str]
    engine: Path | None
    sites: tuple[Path, ...] = ()
    strange: tuple[Path, ...] = ()
    problem: str | None = None

    def record(self, spec: JobSpec, request: Request | None) -> CodeRecord:
        """Return the code record of a run; of an owner's own program, what it is made of now."""
        if spec.workload is not None:
            return self._of_workload(spec, spec.workload, request)
        workload = request.workload if request is not None and spec.code == "request" else None
        return CodeRecord(
            origin=spec.code,
            trust_class=spec.trust_class,
            identity=self.identity if workload is None else workload.commit,
            tree=None if workload is None else workload.tree,
            dirty=self.dirty if workload is None else workload.dirty,
            interpreter=self.interpreter,
            interpreter_version=self.version,
            packages=self.packages,
            lock_digest=hashlib.sha256(strictjson.encode(self.packages)).hexdigest(),
        )

    def _of_workload(self, spec: JobSpec, definition: WorkloadDefinition, request: Request | None) -> CodeRecord:
        """Return what an owner's own program is made of, digested now, or the commit of a request that it times.

        `dirty` says that it is no longer what was read.
        """
        now, sent = again(definition.programs), None if request is None else request.workload
        of_request = spec.code == "request" and sent is not None
        return CodeRecord(
            origin=spec.code,
            trust_class=spec.trust_class,
            identity=sent.commit if of_request and sent is not None else f"workload sha256:{definition.digest}",
            tree=spec.tree,
            dirty=now != definition.programs or (of_request and sent is not None and sent.dirty),
            interpreter=spec.commands[0].argv[0],
            interpreter_version="by digest",
            packages={},
            lock_digest=hashlib.sha256(strictjson.encode({})).hexdigest(),
            programs=now,
        )


class CodeWatch:
    """Knows the host's code as it is now: asks again when an installed package or a source file has changed."""

    def __init__(self, interpreter: str) -> None:
        """Begin to ask."""
        self._interpreter = interpreter
        self._lock = threading.Lock()
        self._known: tuple[CodeFacts, str] | None = None
        self._looked_s = float("-inf")
        self.look()

    def look(self) -> None:
        """Begin to look at what is installed now; a runner has other things to do meanwhile."""
        threading.Thread(target=self.now, name="code-watch", daemon=True).start()

    def now(self, max_age_s: float = 0.0) -> CodeFacts:
        """Return what is installed now, or was so many seconds ago: to look takes a look at each source file."""
        with self._lock:
            now_s = _CLOCK.steady_s()
            if self._known is not None and now_s - self._looked_s < max_age_s:
                return self._known[0]
            if self._known is None or _fingerprint(self._known[0]) != self._known[1]:
                facts = ask_interpreter(self._interpreter)
                self._known = (facts, _fingerprint(facts))
            self._looked_s = now_s
            return self._known[0]


def _fingerprint(facts: CodeFacts) -> str:
    digest = hashlib.sha256()
    alone = [Path(facts.interpreter), *facts.sites, *([] if facts.engine is None else [facts.engine.parent])]
    packages = [] if facts.engine is None else [facts.engine.parent / name for name in _PACKAGES]
    for stamp in (*map(_stamp, alone), *(one for package in packages for one in _stamps(package))):
        digest.update(stamp)
    return digest.hexdigest()


def _stamps(folder: Path | os.DirEntry[str]) -> Iterator[bytes]:
    """Yield a stamp of each source file below a folder; asked several times a run, so without a `Path` for each."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield _stamp(entry)
        elif entry.name not in _NO_SOURCES:
            yield from _stamps(entry)


def _stamp(path: Path | os.DirEntry[str]) -> bytes:
    """Return what changes with a file; a file that vanished changes the list, hence the digest."""
    try:
        found = path.stat()
    except OSError:
        return b""
    return f"{os.fspath(path)} {found.st_mtime_ns} {found.st_size}\n".encode("utf-8", "surrogateescape")


def beside_installation(execution: Execution, code: CodeFacts) -> Execution:
    """Return an execution whose imported module is set beside the host's own installation of it."""
    found = execution.imported
    if found is None or code.engine is None:
        return execution
    own = code.engine.with_name(found.module)
    installation = str(own.resolve()) if own.exists() else None
    return replace(execution, imported=found.evolve(installation=installation))


def ask_interpreter(interpreter: str) -> CodeFacts:
    """Return what the interpreter says of itself and of the installed engine."""
    try:
        done = run([interpreter, "-I", "-c", _ASK], env={"PATH": "/usr/bin:/bin"}, cwd="/", timeout_s=_ASK_WALL_S)
        answer = json.loads(done.stdout) if done.ok else None
        problem = None if done.ok else done.describe()
    except (InfrastructureError, ValueError) as error:
        answer, problem = None, str(error)
    if answer is None:
        return CodeFacts("unknown", None, interpreter, "unknown", {}, None, problem=problem)
    roots = {name: Path(path) for name, path in answer["found"].items() if path}
    identity, dirty = _identity(roots, answer)
    engine = roots.get("engine")
    problem = None if engine else f"{interpreter} has no package 'engine'; install kakeya there"
    sites = tuple(map(Path, answer["sites"]))
    strange = tuple(path for path in map(Path, answer["strange"]) if engine is None or path != engine.parent)
    if engine is not None and engine.parent.resolve() not in {site.resolve() for site in sites}:
        strange += beside_engine(engine.parent)
    python, packages = answer["python"], answer["packages"]
    return CodeFacts(identity, dirty, interpreter, python, packages, engine, sites, strange, problem)


def _identity(roots: dict[str, Path], answer: dict[str, Any]) -> tuple[str, bool | None]:
    if set(roots) != set(_PACKAGES):
        return "unknown", None
    checkout = _checkout(roots)
    if checkout is not None:
        return checkout
    if answer["record"] and not answer["editable"] and answer["site"]:
        files = _recorded(answer["record"])
        lines = "".join(f"{path} {digest}\n" for path, digest in sorted(files.items()))
        digest = hashlib.sha256(lines.encode()).hexdigest()
        return f"wheel files sha256:{digest}", _differs(Path(answer["site"]), files, roots)
    return f"sources sha256:{sources_digest(roots)}", None


def _checkout(roots: dict[str, Path]) -> tuple[str, bool] | None:
    """Return (commit, dirty) when git tracks the packages where they are, None otherwise."""
    top = roots["engine"].parent
    if roots["bridge"].parent != top or not any((folder / ".git").exists() for folder in (top, *top.parents)):
        return None
    try:
        tracked = run_in_work_tree(top, ["ls-files", "--error-unmatch", "--", *(f"{p}/__init__.py" for p in _PACKAGES)])
        head = run_in_work_tree(top, ["rev-parse", "--verify", "HEAD^{commit}"])
        status = run_in_work_tree(top, ["status", "--porcelain", "--untracked-files=all", "--", *_PACKAGES])
    except GitError:
        return None
    if any(done.exit_code != 0 or done.timed_out for done in (tracked, head, status)):
        return None
    return head.stdout.decode("ascii").strip(), bool(status.stdout)


def _recorded(record: str) -> dict[str, str]:
    """Return the digests of the packages' files by path, as the wheel's RECORD lists them."""
    rows = csv.reader(record.splitlines())
    return {path: said for path, said, _ in rows if path.split("/")[0] in _PACKAGES and said.startswith("sha256=")}


def _differs(site: Path, recorded: dict[str, str], roots: dict[str, Path]) -> bool:
    for path, said in recorded.items():
        file = site / path
        if not file.is_file():
            return True
        digest = urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        if said != f"sha256={digest}":
            return True
    listed = {site / path for path in recorded}
    return any(file not in listed for root in roots.values() for file in _sources(root) if file.suffix == ".py")


def sources_digest(roots: dict[str, Path]) -> str:
    """Return sha256 over the names and digests of the packages' files, models left out."""
    digest = hashlib.sha256()
    for name in sorted(roots):
        for file in _sources(roots[name]):
            line = (
                f"{name}/{file.relative_to(roots[name]).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}\n"
            )
            digest.update(line.encode())
    return digest.hexdigest()


def _sources(root: Path) -> Iterator[Path]:
    for file in sorted(root.rglob("*")):
        parts = file.relative_to(root).parts
        if file.is_file() and _NO_SOURCES.isdisjoint(parts):
            yield file
