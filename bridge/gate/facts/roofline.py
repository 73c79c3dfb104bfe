"""How many multiplications a forward needs, and how many the machine can do."""

from __future__ import annotations

from bridge.gate.facts.model_sizes import parameters_of
from bridge.gate.interface import Evidence, Report


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
