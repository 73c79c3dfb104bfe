"""Rules on where a number comes from: who vouches for the record, and for the code that ran."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from bridge import strictjson
from bridge.gate.facts import peer_isolation
from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import record_rule, rule, run_rule
from bridge.records.jobspec import JobSpec
from bridge.records.run import ImportedModule, RunRecord
from bridge.records.verdict import Severity

ENGINE: Final = ("-m", "engine.cli")


@record_rule(
    "G2-AUTHORITY",
    "code",
    severity="violation",
    remedy="Verify the result's attestation first: `kakeya-mac verify ID`; an unsigned result shows integrity only.",
)
def require_vouched_record(_record: RunRecord, evidence: Evidence) -> Iterator[Violation]:
    """The record is vouched for: by the runner that is judging, or by a verified attestation.

    Anybody can write a consistent run.json beside a report; what makes it evidence is who saw the run.
    """
    if evidence.authority == "unattested":
        yield Violation("judged away from the host, without a verified attestation over run.json")


@run_rule(
    "G2-CODE",
    "code",
    remedy="Install the host's engine from a commit or a wheel without local changes, into an environment that holds "
    "packages and nothing else (`python3 -m venv`); `kakeya-runner doctor` names what does not belong there.",
)
def identify_code(record: RunRecord, spec: JobSpec, _evidence: Evidence) -> Iterator[Violation]:
    """The code that ran is known: whose it is, which commit or wheel, unchanged, where it was imported from, on what.

    A number without the code behind it cannot be repeated. Changed code has no name. A package that was imported from
    somewhere else than the tree or the installation on record is other code. Every command counts: one that starts
    another program than the engine could have written the report, whatever ran before it. A package that the engine
    computes with is what its installer wrote down: a baseline can be slowed in the library that it is measured with.
    """
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
        yield Violation("neither commit nor wheel digest of the code is known", "identity", severity="violation")
    if code.dirty is not False:
        said = "unknown whether it differs" if code.dirty is None else "it differs"
        yield Violation(f"the code is not exactly that commit: {said}", "dirty", severity="violation")
    if code.altered:
        said = f"files of packages that are not what was installed: {', '.join(code.altered[:5])}"
        yield Violation(said, "altered", severity="violation")
    if code.lock_digest != hashlib.sha256(strictjson.encode(code.packages)).hexdigest():
        yield Violation("lock_digest is not the digest of the package list", "lock_digest")
    first = spec.commands[0].argv[0]
    if code.interpreter != first:
        yield Violation(
            f"the record's interpreter is {code.interpreter!r}, the commands start {first!r}", "interpreter"
        )
    if spec.workload is None:  # what an owner's own program is made of, G2-PROGRAMS compares digest by digest
        yield from _foreign_programs(spec, code.interpreter)
        yield from _import_origin(record, spec)


def _foreign_programs(spec: JobSpec, interpreter: str) -> Iterator[Violation]:
    """Yield the commands that are not the engine, started as the runner starts it."""
    # Without -I the working directory comes first on the path: right for the request's tree, nobody's for host code.
    flags = ("-I",) if spec.code == "host" else ("-I", "-s")
    for command in spec.commands:
        argvs = [argv for argv in (command.argv, command.reference) if argv is not None]
        engine = all(any(argv[:4] == (interpreter, flag, *ENGINE) for flag in flags) for argv in argvs)
        foreign = command.argv[4:5] == ("tests",) and not _only_tests(spec)  # runs whatever files it is given
        if foreign or not engine:
            begins = " ".join(command.argv[:5])
            yield Violation(
                f"command {command.name} is not the engine measuring: it runs {begins!r}",
                command.name,
                severity="violation",
            )


def _import_origin(record: RunRecord, spec: JobSpec) -> Iterator[Violation]:
    """Compare where the runner found the workload's package with where this code has to be."""
    found = record.imported
    if found is None:
        severity: Severity = "violation" if spec.code == "host" else "reject"
        yield Violation("it is not known where the workload's package was imported from", "imported", severity=severity)
        return
    module = _module(spec.commands[0].argv)
    if found.module != module:
        yield Violation(f"imported.module is {found.module!r}, the first command runs {module!r}", "imported.module")
    if found.work != "${RUN}/files/work":
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


@record_rule(
    "G2-COMPLETE",
    "bound",
    severity="violation",
    remedy="Run `kakeya-runner doctor` on the host: it names the missing source.",
)
def require_complete_record(record: RunRecord, _evidence: Evidence) -> Iterator[Violation]:
    """The runner's record leaves nothing out that a reader needs to repeat the run.

    Provenance with holes is a place to hide in: the host, its processor, its memory and the start of the run are known,
    and no line of the sample pipe was lost.
    """
    for name in ("os", "os_version", "machine", "cpu"):
        if getattr(record.host, name).strip().lower() in {"", "unknown"}:
            yield Violation(f"the host's {name} is unknown", f"host.{name}", premise="machine")
    if record.host.cpu_count < 1 or record.host.memory_bytes < 1:
        yield Violation("the host's processors or memory are unknown", "host", premise="machine")
    if not record.claims:
        yield Violation("no claim chain: it is unknown who took the request", "claims")
    if len(set(record.claims)) != len(record.claims):
        yield Violation("a claim occurs twice in the chain", "claims", severity="reject")
    if len({model.path for model in record.models}) != len(record.models):
        yield Violation("a model is digested twice", "models", severity="reject")
    for model in record.models:
        if (
            not (model.path.startswith(("/", "${")) and model.path.endswith(model.name.rsplit("/", 1)[-1]))
            or not model.files
            or not model.bytes
        ):
            yield Violation(
                f"model {model.name!r} at {model.path!r}: {model.files} files, {model.bytes} bytes",
                "models",
                premise="inputs",
            )
    if record.started is None:
        yield Violation("the start of the run is unknown", "started")
    if record.sample_marks_dropped:
        said = f"{record.sample_marks_dropped} lines of the sample pipe were lost"
        yield Violation(said, "sample_marks_dropped", premise="times")
    cut = any(hit.limit == "log_bytes" for hit in record.limits_hit)
    if bool(record.log_truncated_bytes) != cut:
        said = f"{record.log_truncated_bytes} bytes of the log were cut, the bound on it was {'' if cut else 'not '}met"
        yield Violation(said, "log_truncated_bytes", severity="reject")


@rule(
    "G2-TRUST",
    "code",
    severity="violation",
    remedy="Have the code vouched for: merge it to a protected ref, or `kakeya-runner trust add KEY --code`.",
)
def cap_untrusted_code(evidence: Evidence) -> Iterator[Violation] | Skip:
    """Code that nobody the host trusts vouches for is nobody's program: what it reports is recorded, and no claim.

    Code that nobody the host trusts has vouched for can write any report it likes, whatever ran. Only what the host's
    own code asked, timed and checked from outside says something of it: G2-PEER names what that takes. On the embedded
    bus, where the requester owns the machine, a ratio of processes that the runner timed does too: no program wrote it.
    """
    if evidence.spec is None:
        return Skip("no job spec")
    workload = evidence.spec.workload
    timed = (
        workload is not None
        and bool(workload.metrics)
        and all(metric.aggregate == "ratio" for metric in workload.metrics)
    )
    own = timed and "embedded" in evidence.spec.labels
    if evidence.spec.trust_class == "untrusted" and not own and not peer_isolation.made_by_runner(evidence):
        return iter((Violation("untrusted_code: nobody this host trusts vouches for the code that wrote the report"),))
    return iter(())
