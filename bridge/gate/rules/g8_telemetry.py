"""The runner's telemetry is whole: in order, within the run, dense enough, with a source for every number.

Samples that stop half-way, or that say more than a machine can be used, were changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.gate.state import assess
from bridge.records import RunRecord, Telemetry

INTERVAL_S: Final = 0.5


@rule("G8-TELEMETRY", remedy="Keep run.json as the runner wrote it.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
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
    yield from _words(telemetry)
    if spent_s > 4 * interval_s and len(times) < 0.5 * spent_s / interval_s:
        yield Violation(
            f"{len(times)} samples in {spent_s:.1f} s at one every {interval_s} s",
            "telemetry.samples",
            severity="not_citable",
        )
    for index, sample in enumerate(telemetry.samples):
        for name in ("cpu_share", "other_cpu_share", "gpu_share"):
            share = getattr(sample, name)
            if share is not None and not 0.0 <= share <= 1.25:  # two clocks divide: a little above 1 is rounding
                yield Violation(f"{name} is {share}", f"telemetry.samples.{index}")
        if sample.rss_bytes is not None and record.host.memory_bytes and sample.rss_bytes > record.host.memory_bytes:
            yield Violation(f"rss_bytes {sample.rss_bytes} is more than the host has", f"telemetry.samples.{index}")


def _words(telemetry: Telemetry) -> Iterator[Violation]:
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
                f"{getattr(telemetry, name)} are no values of {name}", f"telemetry.{name}", severity="not_citable"
            )
