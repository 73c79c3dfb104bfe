"""Who kept the accelerator of a report busy, as the runner saw it."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.gate.facts.launch_series import Series, share_alone
from bridge.gate.interface import Evidence, Report


@dataclass(frozen=True)
class Seen:
    """What the runner saw of an accelerator during a run.

    Attributes:
        busiest: the largest busy share of the devices, whoever worked on them; None where no source told.
        own_s: for how long the run's processes kept them busy; None where no source told.
        alone: seconds on the devices by seconds of wall time, of each arm alone; None where no source told.
        devices: how many devices the runner knows.
        wall_s: how long the samples go.
    """

    busiest: float | None
    own_s: float | None
    alone: tuple[float, float] | None
    devices: int
    wall_s: float

    @property
    def somehow(self) -> bool:
        """Whether any source told."""
        return self.busiest is not None or self.own_s is not None or self.alone is not None


def accelerator_of(report: Report) -> str | None:
    """Return the accelerator that a report says it ran on; None for the processor."""
    device = str(report.body["environment"]["device"])
    return None if device.split(":", maxsplit=1)[0] == "cpu" else device


def seen_of(evidence: Evidence, series: Series | None) -> Seen:
    """Return what the runner saw of the accelerators of a run."""
    record = evidence.record
    samples = () if record is None or record.telemetry is None else record.telemetry.samples
    shares = [sample.gpu_share for sample in samples if sample.gpu_share is not None]
    own = [sample.gpu_own_s for sample in samples if sample.gpu_own_s is not None]
    return Seen(
        busiest=max(shares, default=None),
        own_s=max(own) - min(own) if own else None,
        alone=None if series is None else share_alone(series, lambda one: one.gpu_s),
        devices=0 if record is None else len(record.host.devices),
        wall_s=samples[-1].t_s - samples[0].t_s if samples else 0.0,
    )
