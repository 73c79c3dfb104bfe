"""Why two runs cannot be compared, or say less than an interleaved measurement would.

Two runs at two times are never citable against each other; what else differs is named, not weighed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from bridge.gate.facts.samples import Arm
from bridge.gate.interface import Report
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.verdict import Decision

NEVER_CITABLE: Final = "two runs at two times are not interleaved: whatever changed between them is in the ratio"

_MEASURED_SAME: Final = (
    "max_new_tokens", "stop", "stopping_ids", "dtype", "cache_layout", "block_size", "depth", "prefill_chunk_tokens",
    "seed",
)  # fmt: skip


@dataclass(frozen=True)
class MeasuredRun:
    """One side: what its result tree holds. Without a record nobody saw it being measured.

    Attributes:
        reports: bytes of its reports by path.
        decision: what its verdict said, None without one.
    """

    reports: Mapping[str, bytes]
    record: RunRecord | None = None
    spec: JobSpec | None = None
    decision: Decision | None = None


@dataclass(frozen=True)
class Reason:
    """What stands against a comparison; `report` is None where it concerns the runs as a whole."""

    kind: Literal["impossible", "weaker"]
    text: str
    report: str | None = None


def of_runs(a: MeasuredRun, b: MeasuredRun) -> Iterator[Reason]:
    """Yield what the runs as a whole do not share."""
    for name, run in (("A", a), ("B", b)):
        if run.decision == "rejected":
            yield Reason("impossible", f"{name} was rejected by its gate: nothing it says may be used")
        elif run.decision is None:
            yield Reason("weaker", f"{name} has no verdict")
        if run.record is None:
            yield Reason("weaker", f"{name} has no RunRecord: nobody saw it being measured")
    if a.record is not None and b.record is not None:
        yield from _records(a.record, b.record)
    loaded = [name for name, run in (("A", a), ("B", b)) if run.spec is not None and run.spec.draws_load]
    if len(loaded) == 1:
        yield Reason("weaker", f"only in {loaded[0]} the host held processors in every second launch (--load drawn)")
    profiles = {run.spec.profile for run in (a, b) if run.spec is not None}
    if "smoke" in profiles:
        yield Reason("weaker", "a smoke run is a first look: few prompts and launches")


def _records(a: RunRecord, b: RunRecord) -> Iterator[Reason]:
    if a.id == b.id:
        yield Reason("weaker", "A and B are the same run: every ratio is 1 by construction")
    if a.preset == b.preset and a.preset_digest != b.preset_digest:
        yield Reason("weaker", f"other definition of {a.preset}: {a.preset_digest[:12]} and {b.preset_digest[:12]}")
    hosts = [(run.host.name, run.host.cpu, run.host.os, run.host.os_version, run.host.machine) for run in (a, b)]
    if hosts[0] != hosts[1]:
        yield Reason("weaker", f"other host: {', '.join(hosts[0])} and {', '.join(hosts[1])}")
    if a.runner != b.runner:
        yield Reason("weaker", f"other runner: {a.runner} and {b.runner}")
    if a.code is None or b.code is None:
        yield Reason("weaker", "the code of one run is not known")
        return
    if (a.code.identity, a.code.tree) != (b.code.identity, b.code.tree):
        yield Reason("weaker", f"other code: {a.code.identity[:40]} and {b.code.identity[:40]}")
    if a.code.dirty is not False or b.code.dirty is not False:
        yield Reason("weaker", "the code of one run is not exactly a commit or a wheel")
    if a.code.lock_digest != b.code.lock_digest:
        both = set(a.code.packages.items()) ^ set(b.code.packages.items())
        names = sorted({name for name, _ in both})
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        yield Reason("weaker", f"other packages: {', '.join(names[:4]) or 'unknown'}{more}")
    if a.sandbox.kind != b.sandbox.kind:
        yield Reason("weaker", f"other sandbox: {a.sandbox.kind} and {b.sandbox.kind}")


def of_reports(a: Report, b: Report) -> Iterator[Reason]:
    """Yield what two well-formed reports of one kind do not share, prompts left out."""
    ours, theirs = a.body["config"], b.body["config"]
    for model in ("target", "drafter", "restoration"):
        one, other = _model(ours, model), _model(theirs, model)
        if one != other:
            yield Reason("weaker", f"other model: {model} {one or 'none'} and {other or 'none'}", a.path)
    for name in _MEASURED_SAME:
        if ours.get(name) != theirs.get(name):
            text = f"other setting: {name} {ours.get(name)!r} and {theirs.get(name)!r}"
            yield Reason("weaker", text[:200], a.path)
    for name in ("backend", "device"):
        one, other = (str(cast("Mapping[str, Any]", report.body["environment"])[name]) for report in (a, b))
        if one != other:
            yield Reason("weaker", f"other {name}: {one} and {other}", a.path)


def _model(config: Mapping[str, Any], name: str) -> str:
    model = config.get(name)
    if not isinstance(model, Mapping):
        return ""
    return f"{model.get('name')} {str(model.get('digest') or 'without digest')[:12]}"


def of_prompts(path: str, name: str, first: Arm, second: Arm) -> Iterator[Reason]:
    """Yield what the prompts of an arm of both runs do not share."""
    ours = {sample["prompt_digest"] for sample in first.measured}
    theirs = {sample["prompt_digest"] for sample in second.measured}
    common = len(ours & theirs)
    if not common:
        text = f"other prompts: arm {name!r} of A and B has none in common ({len(ours)} and {len(theirs)})"
        yield Reason("impossible", text, path)
    elif ours != theirs:
        text = f"other prompts: arm {name!r} has {common} in common, of {len(ours)} and {len(theirs)}"
        yield Reason("weaker", text, path)
    if first.code_path != second.code_path:
        yield Reason("weaker", f"arm {name!r} runs {first.code_path} and {second.code_path}", path)
