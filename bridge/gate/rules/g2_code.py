"""The code that ran is known: whose it is, which commit or wheel, unchanged, where it was imported from, on what.

A number without the code behind it cannot be repeated. Changed code has no name. A package that was imported from
somewhere else than the tree or the installation on record is other code. Every command counts: one that starts another
program than the engine could have written the report, whatever ran before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from bridge import strictjson
from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import ImportedModule, JobSpec, RunRecord, Severity

ENGINE: Final = ("-m", "engine.cli")


@rule(
    "G2-CODE",
    remedy="Install the host's engine from a commit or a wheel without local changes; `kakeya-runner doctor`.",
)
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.record is None or evidence.spec is None:
        return Skip("no RunRecord or no JobSpec")
    return _code(evidence.record, evidence.spec)


def _code(record: RunRecord, spec: JobSpec) -> Iterator[Violation]:
    code = record.code
    if code is None:
        yield Violation("the record names no code")
        return
    for name, got, wanted in (
        ("origin", code.origin, spec.code),
        ("trust_class", code.trust_class, spec.trust_class),
        ("tree", code.tree, spec.tree if spec.code == "request" else code.tree),
    ):
        if got != wanted:
            yield Violation(f"{name}: the record says {got!r}, the job spec {wanted!r}", name)
    if code.identity.strip().lower() in {"", "unknown", "none"}:
        yield Violation("neither commit nor wheel digest of the code is known", "identity", severity="not_citable")
    if code.dirty is not False:
        said = "unknown whether it differs" if code.dirty is None else "it differs"
        yield Violation(f"the code is not exactly that commit: {said}", "dirty", severity="not_citable")
    if code.lock_digest != hashlib.sha256(strictjson.encode(code.packages)).hexdigest():
        yield Violation("lock_digest is not the digest of the package list", "lock_digest")
    first = spec.commands[0].argv[0]
    if code.interpreter != first:
        yield Violation(
            f"the record's interpreter is {code.interpreter!r}, the commands start {first!r}", "interpreter"
        )
    yield from _programs(spec, code.interpreter)
    yield from _imported(record, spec)


def _programs(spec: JobSpec, interpreter: str) -> Iterator[Violation]:
    """Yield the commands that are not the engine, started as the runner starts it."""
    # Without -I the working directory comes first on the path: right for the request's tree, nobody's for host code.
    flags = ("-I",) if spec.code == "host" else ("-I", "-s")
    for command in spec.commands:
        engine = any(command.argv[:4] == (interpreter, flag, *ENGINE) for flag in flags)
        foreign = command.argv[4:5] == ("tests",) and not _only_tests(spec)  # runs whatever files it is given
        if foreign or not engine:
            begins = " ".join(command.argv[:5])
            yield Violation(
                f"command {command.name} is not the engine measuring: it runs {begins!r}",
                command.name,
                severity="not_citable",
            )


def _imported(record: RunRecord, spec: JobSpec) -> Iterator[Violation]:
    """Compare where the runner found the workload's package with where this code has to be."""
    found = record.imported
    if found is None:
        severity: Severity = "not_citable" if spec.code == "host" else "reject"
        yield Violation("it is not known where the workload's package was imported from", "imported", severity=severity)
        return
    module = _module(spec.commands[0].argv)
    if found.module != module:
        yield Violation(f"imported.module is {found.module!r}, the first command runs {module!r}", "imported.module")
    if PurePosixPath(found.work).parts[-2:] != (record.id, "work"):
        yield Violation(f"the run was started in {found.work}, which is not its own folder", "imported.work")
    # Two commits are timed by the host's own engine, which starts a child for each: G4-TREES looks at those. What
    # answers a command as its peer is timed by the host's too: G2-PEER.
    asks = any(command.peer is not None for command in spec.commands)
    timed_by_host = spec.code == "host" or spec.base is not None or asks
    in_tree = _is_package(found.path, f"{found.work}/{found.module}")
    if not timed_by_host and not in_tree and not (_only_tests(spec) and _is_hosts(found)):
        yield Violation(f"{found.module} came from {found.path}, not from the request's tree", "imported.path")
    if timed_by_host and not _is_hosts(found):
        home = found.installation
        yield Violation(f"{found.module} came from {found.path}, not from the host's own {home}", "imported.path")


def _only_tests(spec: JobSpec) -> bool:
    """Whether the request's code is only tested: the host's own harness then serves a tree that has none."""
    return all(output.kind == "test_suite" for output in spec.outputs)


def _is_hosts(found: ImportedModule) -> bool:
    return found.installation is not None and _is_package(found.path, found.installation)


def _module(argv: tuple[str, ...]) -> str | None:
    """Return the top-level name of the module a command runs, or None."""
    after = argv[argv.index("-m") + 1 :] if "-m" in argv else ()
    return after[0].partition(".")[0] if after else None


def _is_package(path: str, folder: str) -> bool:
    """Whether a path is what an import finds for this folder: the package, its `__init__`, or a module of its name."""
    return path in (folder, f"{folder}/__init__.py", f"{folder}.py")
