"""Derive what follows from a run: (reports, RunRecord, JobSpec) -> Derived, a pure function of its arguments.

Knows no earlier attempt and no verdict: what may be said of a number is for those who judge.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from bridge.gate.claims import claim_drafts
from bridge.gate.facts.launch_series import series_of
from bridge.gate.facts.model_sizes import parameters_of, shape_of
from bridge.gate.facts.samples import Arm, Sample, arms_of
from bridge.gate.identity import identity
from bridge.gate.interface import Evidence, Report
from bridge.gate.reports.of_run import load_of_run, profile_of
from bridge.records.derived import Derived, DerivedArm, DerivedModel, DerivedNumber, DerivedReport
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.workload import KIND as WORKLOAD

_DIGITS: Final = 9
"""Significant digits of a number: two machines' logarithms may differ in the last of a double's seventeen."""
_PROBLEM_CHARS: Final = 300


def derive(run_id: str, files: Mapping[str, bytes], record: RunRecord | None, spec: JobSpec | None) -> Derived:
    """Return what follows from the observations of a run.

    Args:
        run_id: the run; `bridge.gate.judging.BARE_ID` for report files outside a run.
        files: bytes of every file that the run left, by path below its report directory.
        record: what the runner saw; None for report files outside a run.
        spec: what was to run; None for report files outside a run.
    """
    reports, problems = load_of_run(files, spec)
    evidence = Evidence(
        reports=reports,
        record=record,
        spec=spec,
        profile=profile_of(reports, spec),
        run_id=run_id,
        files=files,
        problems=problems,
        gate=identity(),
    )
    return Derived(id=run_id, gate=identity(), reports=tuple(_of_report(report, evidence) for report in reports))


def _of_report(report: Report, evidence: Evidence) -> DerivedReport:
    """Return what follows from one report; whatever a report does to that is said in it, and never raised."""
    path = _clean(report.path)
    sha256 = None if report.kind == WORKLOAD else hashlib.sha256(report.data).hexdigest()
    if report.value is None:
        why = "; ".join(problem.message for problem in evidence.problems.get(report.path, ()))
        problem = _clean(f"no report: {why or 'see the verdict'}")
        return DerivedReport(path=path, sha256=sha256, kind=None, problem=problem)
    derived = DerivedReport(path=path, sha256=sha256, kind=report.kind, **_asked(report, evidence))
    try:
        derived = derived.evolve(arms=tuple(_arms(report, evidence)), target=_target(report, evidence))
        return derived.evolve(numbers=tuple(_numbers(report, evidence)))
    except Exception as error:  # noqa: BLE001  as with a rule that could not judge: said in the document
        return derived.evolve(problem=_clean(f"{type(error).__name__}: {error}"))


def _asked(report: Report, evidence: Evidence) -> dict[str, Any]:
    """Return preset, parameters and profile: the job spec's, or what the report says where nobody saw its run."""
    spec = evidence.spec
    if spec is not None:
        return {"preset": spec.preset, "params": dict(spec.params), "profile": spec.profile}
    run = cast("Mapping[str, Any]", report.body["run"])
    params = {_clean(name): _clean(value) if isinstance(value, str) else value for name, value in run["params"].items()}
    return {"preset": _clean(str(run["preset"])), "params": params, "profile": run["profile"]}


def _target(report: Report, evidence: Evidence) -> DerivedModel | None:
    """Return the target among the models that the runner digested."""
    named: object = None if report.kind == WORKLOAD else report.body["config"].get("target")
    if evidence.record is None or not isinstance(named, Mapping):
        return None
    for model in evidence.record.models:
        if model.weights_sha256 is not None and model.weights_sha256 == named.get("digest"):
            counted = shape_of(report, evidence) is not None
            least = parameters_of(report, evidence) if counted else None
            return DerivedModel(name=model.name, weights_sha256=model.weights_sha256, parameters=least)
    return None


def _arms(report: Report, evidence: Evidence) -> Iterator[DerivedArm]:
    for arm in arms_of(report, evidence).all:
        yield _arm(arm, _turns_rate(report, arm, evidence))


def _arm(arm: Arm, turns_rate: float | None) -> DerivedArm:
    samples, measured = arm.samples, arm.measured
    counters = [sample["counters"] for sample in measured]
    rates = [rate for sample in measured if (rate := decode_rate(sample)) is not None]
    rows = "\n".join(f"{sample['prompt_digest']} {sample['token_digest']}" for sample in samples)
    return DerivedArm(
        name=_clean(arm.name),
        role=arm.role,
        prompts=len({sample["prompt_digest"] for sample in measured}),
        samples=len(measured),
        warm_ups=len(samples) - len(measured),
        tokens=sum(sample["output_tokens"] for sample in measured),
        stop_reasons=dict(sorted(Counter(str(sample["stop_reason"]) for sample in measured).items())),
        looping_samples=sum(sample["loop_onset"] is not None for sample in measured),
        target_forwards=sum(one["target_forwards"] for one in counters),
        drafted_tokens=sum(one["drafted_tokens"] for one in counters),
        accepted_tokens=sum(one["accepted_tokens"] for one in counters),
        asked_answers=sum(sample["correct"] is not None for sample in measured),
        right_answers=sum(sample["correct"] is True for sample in measured),
        own_clock_tokens_per_s=_rounded(statistics.median(rates)) if rates else None,
        turns_tokens_per_s=turns_rate,
        outputs_sha256=hashlib.sha256(rows.encode()).hexdigest(),
    )


def decode_rate(sample: Sample) -> float | None:
    """Return decoded tokens a second by the program's own clock; None without a decoded token or without time."""
    seconds, tokens = float(sample["stages"]["decode_s"]), len(sample["tokens"]) - 1
    return tokens / seconds if tokens > 0 and seconds > 0.0 else None


def _turns_rate(report: Report, arm: Arm, evidence: Evidence) -> float | None:
    """Return an arm's tokens a second in the turns of the launches that count."""
    series = series_of(report, evidence)
    turns = [] if series is None else [one for record in series.counted for one in record.turns if one.arm == arm.name]
    seconds, tokens = sum(one.done_s - one.go_s for one in turns), sum(one.tokens for one in turns)
    return _rounded(tokens / seconds) if tokens and seconds > 0.0 else None


def _numbers(report: Report, evidence: Evidence) -> Iterator[DerivedNumber]:
    for draft in claim_drafts(report, evidence):
        value = None if draft.value is None else _rounded(draft.value)
        yield DerivedNumber(id=draft.id, value=value, unit=draft.unit, n=draft.n)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _clean(text: str) -> str:
    """Return text that a record may hold: bounded, without control characters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)[:_PROBLEM_CHARS]
