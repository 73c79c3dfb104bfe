"""What a person wants to know of a comparison, computed from its samples alone.

The gate recomputes every number it grants; these are for reading on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.reports.builder import Arm, Report, ReportClaim
from engine.reports.sample import Sample


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """Totals of one arm's measured samples; ``acceptance_length`` is committed tokens per target forward."""

    name: str
    samples: int
    output_tokens: int
    decode_s: float
    tokens_per_s: float
    acceptance_length: float
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Every arm, the ratio of total decode times baseline / candidate, and how many prompts gave identical tokens."""

    arms: tuple[ArmSummary, ...]
    ratio: float | None
    identical: int
    compared: int


def measured(arm: Arm) -> list[Sample]:
    """Return the samples that count: no warm-ups."""
    return [sample for sample in arm.samples if not sample.is_warmup]


def summarise(report: Report) -> Summary:
    """Return the totals of every arm and their ratio."""
    baseline = [arm for arm in report.arms if arm.role in {"baseline", "control"}]
    candidate = next((arm for arm in report.arms if arm.role == "candidate"), None)
    ratio, identical, compared = None, 0, 0
    if candidate is not None and baseline:
        ratio = decode_ratio(baseline, candidate)
        reference = {sample.prompt_id: sample.tokens for sample in measured(baseline[0])}
        compared = len(reference)
        other = {s.prompt_id for s in measured(candidate) if reference.get(s.prompt_id) != s.tokens}
        identical = compared - len(other)
    return Summary(tuple(_arm(arm) for arm in report.arms), ratio, identical, compared)


def decode_ratio(baseline: Sequence[Arm], candidate: Arm) -> float:
    """Return total baseline decode time (mean over its arms) over total candidate decode time."""
    ours = sum(sample.stages.decode_s for sample in measured(candidate))
    theirs = sum(sample.stages.decode_s for arm in baseline for sample in measured(arm)) / len(baseline)
    return theirs / ours if ours else 0.0


def _arm(arm: Arm) -> ArmSummary:
    samples = measured(arm)
    decoded = sum(max(sample.output_tokens - 1, 0) for sample in samples)
    seconds = sum(sample.stages.decode_s for sample in samples)
    forwards = sum(sample.counters.target_forwards for sample in samples)
    committed = sum(s.counters.steps - s.idle_refusals + s.counters.accepted_tokens for s in samples)
    return ArmSummary(
        name=arm.name,
        samples=len(samples),
        output_tokens=sum(sample.output_tokens for sample in samples),
        decode_s=seconds,
        tokens_per_s=decoded / seconds if seconds else 0.0,
        acceptance_length=committed / forwards if forwards else 0.0,
        kv_bytes=max((sample.memory.kv_bytes for sample in samples), default=0),
    )


def claims(report: Report, summary: Summary) -> tuple[ReportClaim, ...]:
    """Return what the report states and the gate recomputes; wording is the gate's to grant."""
    candidate = next((arm.name for arm in report.arms if arm.role == "candidate"), None)
    baseline = tuple(arm.name for arm in report.arms if arm.role in {"baseline", "control"})
    if candidate is None or summary.ratio is None or not baseline:
        return ()
    return (ReportClaim("decode_speedup", "decode_speedup", (candidate, *baseline), summary.ratio, "ratio"),)
