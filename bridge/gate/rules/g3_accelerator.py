"""A declared accelerator was seen busy by the runner, from outside the workload.

A missing device falls back to the processor in silence; the report would still say `metal`.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G3-ACCELERATOR",
    severity="not_citable",
    remedy="Give the runner a source for the accelerator's load (NVML; on macOS powermetrics or ioreg), see `doctor`.",
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    device, record = str(report.body["environment"]["device"]), evidence.record
    if device.split(":", maxsplit=1)[0] == "cpu" or record is None:
        return
    if not record.host.devices:
        yield Violation(f"the report says {device!r}, the runner knows no such device", "/environment/device")
        return
    shares = [s.gpu_share for s in record.telemetry.samples if s.gpu_share is not None] if record.telemetry else []
    least = float(evidence.profile["accelerator_busy_share_min"])
    if not shares:
        yield Violation(f"the runner has no source for the load of {device!r}", "/environment/device")
    elif max(shares) < least:
        yield Violation(f"{device!r} was never more than {max(shares) * 100:.0f} % busy", "/environment/device")
