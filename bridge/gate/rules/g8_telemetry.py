"""The runner's telemetry is whole: in order, within the run, dense enough, with a source for every number.

Samples that stop half-way, or that say more than a machine can be used, were changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import RunRecord, Telemetry


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
    if any(b <= a for a, b in zip(times, times[1:], strict=False)) or (
        times and times[-1] > record.wall_s + interval_s
    ):
        yield Violation("samples are not in order, or after the run", "telemetry.samples")
    spent_s = record.commands[-1].ended_s - record.commands[0].started_s if record.commands else 0.0
    if spent_s > 4 * interval_s and len(times) < 0.5 * spent_s / interval_s:
        yield Violation(f"{len(times)} samples in {spent_s:.1f} s at one every {interval_s} s", "telemetry.samples")
    for index, sample in enumerate(telemetry.samples):
        for name in ("cpu_share", "other_cpu_share", "gpu_share"):
            share = getattr(sample, name)
            if share is not None and not 0.0 <= share <= 1.25:  # two clocks divide: a little above 1 is rounding
                yield Violation(f"{name} is {share}", f"telemetry.samples.{index}")
        if sample.rss_bytes is not None and record.host.memory_bytes and sample.rss_bytes > record.host.memory_bytes:
            yield Violation(f"rss_bytes {sample.rss_bytes} is more than the host has", f"telemetry.samples.{index}")
