"""Speeds are possible: no step commits more than it accepts, no machine computes faster than its roofline.

A speed-up above 1.05 times the mean acceptance length means a handicapped baseline; a rate above what the processors
can multiply means a broken timer.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.claims import drafts
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import arms_of
from bridge.gate.shapes import parameters_of


@report_rule("G5-PLAUSIBLE", kinds=kinds.PAIRED, remedy="Use the fastest native baseline; check both arms' timers.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    found = {draft.id: draft for draft in drafts(report, evidence)}
    speed, accepted = found.get("decode_speedup"), found.get("acceptance_length")
    profile = evidence.profile
    if speed is not None and speed.value is not None:
        if accepted is not None and report.kind == kinds.CODE_THROUGHPUT:
            most = float(profile["plausible_speedup_slack"]) * float(accepted.detail["all_tokens"])
            if speed.value > most and speed.interval is not None:
                length = accepted.detail["all_tokens"]
                yield Violation(
                    f"baseline handicapped: {speed.value:.2f}x with {length:.2f} tokens per forward",
                    "/arms",
                    severity="reject" if speed.interval[0] > most else "not_citable",
                )
        if speed.value < float(profile["plausible_speedup_min"]):
            yield Violation(f"{speed.value:.3f}x is a fault, not a measurement", "/arms")
    yield from _roofline(report, evidence)


def forward_rate(report: Report, evidence: Evidence, forwards: int, seconds: float) -> float:
    """Return the least multiplications and additions a second that so many forwards need, 0 without a target or time.

    A mixture of experts runs a part of its parameters: a sixteenth is below any in use.
    """
    if report.body["config"].get("target") is None or seconds <= 0:
        return 0.0
    return 2.0 * parameters_of(report, evidence) / 16 * forwards / seconds


def most_flops(report: Report, evidence: Evidence) -> float:
    """Return what the machine can compute in a second at most."""
    device = str(report.body["environment"]["device"])
    cores = evidence.record.host.cpu_count if evidence.record is not None else 256
    if device.split(":", maxsplit=1)[0] == "cpu":
        return float(evidence.profile["roofline_flop_per_s_per_core"]) * max(cores, 1)
    return float(evidence.profile["roofline_flop_per_s_accelerator"])


def _roofline(report: Report, evidence: Evidence) -> Iterator[Violation]:
    most = most_flops(report, evidence)
    for arm in arms_of(report, evidence).all:
        for sample in arm.samples:
            seconds, tokens = sample["stages"]["decode_s"], sample["output_tokens"] - 1
            rows = tokens if sample["accepted_per_step"] is None else sample["counters"]["target_forwards"]
            if forward_rate(report, evidence, rows, seconds) > most:
                yield Violation(f"{rows} forwards in {seconds:.2e} s are beyond this machine", arm.pointer(sample))
