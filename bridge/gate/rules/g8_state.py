"""The machine was in a fit state: not throttled, on mains, not short of memory, not busy with other work.

Two identical machines differ by 56 % when one is hot. `unknown` is not fine by itself: it passes only if the
interleaved baseline, from its raw rows, kept its speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.rules.g5_trend import baseline_trend
from bridge.gate.sampled import arms_of
from bridge.gate.state import assess
from bridge.records import RunRecord


@report_rule(
    "G8-STATE",
    severity="not_citable",
    kinds=kinds.PAIRED,
    remedy="Repeat on mains power, cool and alone; pool both attempts.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    record = evidence.record
    if record is None:
        return
    if record.telemetry is None:
        yield Violation("the runner has no telemetry of this run", "telemetry")
        return
    unknown: list[str] = []
    for name in ("thermal", "power", "memory_pressure"):
        for value in getattr(record.telemetry, name):
            state = assess(name, value)
            if state in {"bad", "strange"}:
                yield Violation(f"{name} was {value!r}", f"telemetry.{name}")
            elif state == "unknown":
                unknown.append(name)
    yield from _tenants(record, float(evidence.profile["co_tenant_share_max"]))
    if unknown:
        yield from _drift(report, evidence, sorted(set(unknown)))


def _tenants(record: RunRecord, most: float) -> Iterator[Violation]:
    samples = record.telemetry.samples if record.telemetry is not None else ()
    shares = [sample.other_cpu_share for sample in samples if sample.other_cpu_share is not None]
    if shares and sum(shares) / len(shares) > most:
        mean = sum(shares) / len(shares)
        yield Violation(
            f"others used {mean * 100:.0f} % of the machine on average, at most {most * 100:.0f} %", "telemetry"
        )


def _drift(report: Report, evidence: Evidence, unknown: list[str]) -> Iterator[Violation]:
    trend, most = baseline_trend(arms_of(report, evidence)), float(evidence.profile["drift_unknown_max"])
    said = " and ".join(unknown)
    if trend is None:
        yield Violation(f"{said} unknown, and too few baseline samples to show that the speed was kept", "telemetry")
    elif abs(trend.slope) > math.log1p(most):
        drift = math.expm1(trend.slope) * 100
        yield Violation(
            f"{said} unknown, and the baseline drifted by {drift:+.1f} %, at most {most * 100:.0f} %", "telemetry"
        )
