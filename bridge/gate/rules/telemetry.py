"""Rules on the runner's telemetry: heat, power, memory, other work on the machine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, Literal

from bridge.gate.facts.accelerators import accelerator_of
from bridge.gate.facts.cuda import older_driver
from bridge.gate.facts.samples import arms_of
from bridge.gate.interface import Evidence, Report, Skip, Violation
from bridge.gate.report_kinds import PAIRED
from bridge.gate.rule import report_rule, rule
from bridge.gate.rules.statistics import baseline_trend
from bridge.limits import MIB
from bridge.records.run import RunRecord, Telemetry
from bridge.records.verdict import Severity

State = Literal["fit", "bad", "unknown", "strange"]
HOT_C: Final = 95.0
PRESSURE_MAX: Final = 10.0  # per cent of ten seconds in which something waited for memory
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
INTERVAL_S: Final = 0.5
SHARE_MAX: Final = 1.25  # two clocks divide: a little above 1 is rounding, and a busy machine was seen at 1.36
SHARE_IMPOSSIBLE: Final = 10.0  # between two readings half a second apart somebody would have stood still for 4.5 s
SWAP_GROWN_MAX: Final = 64 * MIB
_SETTINGS: Final = ("ecc", "mig", "persistence", "power_limit")  # of a card, by its owner


@report_rule(
    "G8-STATE",
    "machine",
    severity="violation",
    kinds=PAIRED,
    remedy="Repeat on mains power, cool and alone; pool both attempts.",
)
def require_fit_machine(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The machine was fit: not throttled, short of power or memory or shared with other work, and it kept its speed.

    Two identical machines differ by 56 % when one is hot. A baseline that got slower or faster, significant at 1 % and
    by more than 5 % end to end, says that the machine changed. `unknown` is not fine by itself: it passes only if the
    baseline, from its raw rows, drifted by less than 10 %.
    """
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
    accelerated = accelerator_of(report) is not None
    for said in unfit(record.telemetry, accelerated=accelerated):
        yield Violation(said, "telemetry.conditions")
    if accelerated and record.code and (apart := older_driver(record.code.packages, record.host.drivers)):
        has, built = (".".join(map(str, version)) for version in apart)
        yield Violation(f"the driver has CUDA {has}, older than the {built} that torch was built for", "host.drivers")
    yield from _co_tenants(record, float(evidence.profile["co_tenant_share_max"]))
    yield from _baseline_drift(report, evidence, sorted(set(unknown)))


def unfit(telemetry: Telemetry, *, accelerated: bool) -> Iterator[str]:
    """Yield what the machine said of itself that makes its absolute speed no machine's of its kind.

    Args:
        telemetry: what the runner sampled.
        accelerated: whether the report is of an accelerator; what others do on it says nothing of a processor's.
    """
    for one in telemetry.conditions:
        name = one.name.rpartition(".")[2]
        if name == "low_power" and "on" in {one.before, one.after}:
            yield "low power mode was on"
        elif name == "swap_used" and (grown := _bytes(one.after) - _bytes(one.before)) > SWAP_GROWN_MAX:
            yield f"swap grew by {grown / MIB:.0f} MiB, at most {SWAP_GROWN_MAX / MIB:.0f}"
        elif name == "mig" and accelerated and "on" in {one.before, one.after}:
            yield f"{one.name.partition('.')[0]} is split (MIG): others may work on the same card"
        elif name in _SETTINGS and accelerated and one.before != one.after:
            yield f"{one.name} was changed from {one.before} to {one.after}"
        elif name == "slowed_by" and accelerated:
            for slower in sorted({one.before, one.after} - {"nothing"}):
                yield f"{one.name.partition('.')[0]} was slowed by {slower}"
    strangers = max((sample.gpu_strangers or 0 for sample in telemetry.samples), default=0)
    if accelerated and strangers:
        yield f"{strangers} other processes worked on the accelerator"


def _bytes(text: str) -> float:
    number = _NUMBER.search(text)
    return float(number.group()) if number else 0.0


def _co_tenants(record: RunRecord, most: float) -> Iterator[Violation]:
    samples = record.telemetry.samples if record.telemetry is not None else ()
    shares = [sample.other_cpu_share for sample in samples if sample.other_cpu_share is not None]
    if shares and sum(shares) / len(shares) > most:
        mean = sum(shares) / len(shares)
        yield Violation(
            f"others used {mean * 100:.0f} % of the machine on average, at most {most * 100:.0f} %", "telemetry"
        )


def _baseline_drift(report: Report, evidence: Evidence, unknown: list[str]) -> Iterator[Violation]:
    trend, said = baseline_trend(arms_of(report, evidence)), f"{' and '.join(unknown)} unknown, and " if unknown else ""
    if trend is None:
        if unknown:
            yield Violation(f"{said}too few baseline samples to show that the speed was kept", "telemetry")
        return
    significant = trend.p_value < float(evidence.profile["trend_alpha"])
    if not (significant or unknown):
        return
    most = math.log1p(float(evidence.profile["trend_max" if significant else "drift_unknown_max"]))
    if abs(trend.slope) > most:
        drift, bound = (math.expm1(end) * 100 for end in (trend.slope, math.copysign(most, trend.slope)))
        yield Violation(
            f"{said}the baseline drifted by {drift:+.1f} % end to end (p = {trend.p_value:.1e}), beyond the bound of "
            f"{bound:+.1f} %",
            "telemetry",
        )


@rule("G8-TELEMETRY", "machine", remedy="Keep run.json as the runner wrote it.")
def require_whole_telemetry(evidence: Evidence) -> Iterator[Violation] | Skip:
    """The runner's telemetry is whole: in order, within the run, dense enough, with a source for every number.

    Samples that stop half-way, or that say more than a machine can be used, were changed.
    """
    if evidence.record is None or evidence.record.telemetry is None:
        return Skip("no telemetry")
    return _telemetry(evidence.record, evidence.record.telemetry)


def _telemetry(record: RunRecord, telemetry: Telemetry) -> Iterator[Violation]:
    times = [sample.t_s for sample in telemetry.samples]
    interval_s = telemetry.interval_s
    if interval_s <= 0:
        yield Violation(f"sampled every {interval_s} s", "telemetry.interval_s")
        return
    if any(b <= a for a, b in pairwise(times)) or (times and times[-1] > record.wall_s + interval_s):
        yield Violation("samples are not in order, or after the run", "telemetry.samples")
    spent_s = record.commands[-1].ended_s - record.commands[0].started_s if record.commands else 0.0
    gaps = [b - a for a, b in pairwise(times)]
    doublings = math.log2(interval_s / INTERVAL_S)
    if doublings < 0 or doublings != int(doublings):
        yield Violation(f"{interval_s} s is not {INTERVAL_S} s doubled", "telemetry.interval_s")
    # Right after a doubling one sample may still follow at the old distance.
    short = sum(1 for gap in gaps if gap < 0.9 * interval_s)
    if short > max(doublings, 0):
        yield Violation(f"{short} samples follow sooner than every {interval_s} s", "telemetry.samples")
    yield from _states(telemetry)
    if spent_s > 4 * interval_s and len(times) < 0.5 * spent_s / interval_s:
        yield Violation(
            f"{len(times)} samples in {spent_s:.1f} s at one every {interval_s} s",
            "telemetry.samples",
            severity="violation",
        )
    for index, sample in enumerate(telemetry.samples):
        for name in ("cpu_share", "other_cpu_share", "gpu_share"):
            share = getattr(sample, name)
            if share is not None and not 0.0 <= share <= SHARE_MAX:
                severity: Severity = "violation" if 0.0 <= share <= SHARE_IMPOSSIBLE else "reject"
                yield Violation(f"{name} is {share}", f"telemetry.samples.{index}", severity=severity)
        if sample.rss_bytes is not None and record.host.memory_bytes and sample.rss_bytes > record.host.memory_bytes:
            yield Violation(f"rss_bytes {sample.rss_bytes} is more than the host has", f"telemetry.samples.{index}")


def _states(telemetry: Telemetry) -> Iterator[Violation]:
    """Yield values without a source, and words that are no values of their measure."""
    for name in ("thermal", "power", "memory_pressure"):
        known = any(value != "unknown" for value in getattr(telemetry, name))
        source = telemetry.sources.get(name, "")
        if not source or (source.startswith("unknown") and known):
            yield Violation(
                f"{name} is {getattr(telemetry, name)} from the source {source!r}", f"telemetry.sources.{name}"
            )
        if any(assess(name, value) == "strange" for value in getattr(telemetry, name)):
            yield Violation(
                f"{getattr(telemetry, name)} are no values of {name}", f"telemetry.{name}", severity="violation"
            )


def assess(name: str, value: str) -> State:
    """Return what a value of `thermal`, `power` or `memory_pressure` says; `strange` is no word of that measure."""
    if value == "unknown":
        return "unknown"
    number = _NUMBER.search(value)
    amount = float(number.group()) if number else None
    return {"power": _power, "thermal": _thermal, "memory_pressure": _pressure}[name](value, amount)


def _power(value: str, _amount: float | None) -> State:
    if value == "mains":
        return "fit"
    return "bad" if value == "battery" else "strange"


def _thermal(value: str, amount: float | None) -> State:
    if value.startswith("hottest sensor") and amount is not None:
        return "fit" if amount < HOT_C else "bad"
    if value in {"moderate", "heavy", "trapping", "sleeping"}:
        return "bad"
    return "fit" if value == "nominal" else "strange"


def _pressure(value: str, amount: float | None) -> State:
    if value.startswith("some ") and amount is not None:
        return "fit" if amount <= PRESSURE_MAX else "bad"
    if value in {"warning", "critical"}:
        return "bad"
    return "fit" if value == "normal" else "strange"
