"""Who kept the accelerator of a report busy, as the runner saw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.gate.facts.launch_series import Series, share_alone
from bridge.gate.interface import Evidence, Report

_LIBRARIES: Final = frozenset({"mlx", "torch"})


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


PROCESSOR: Final = "cpu"
KINDS: Final = frozenset({"cuda", "metal"})
"""What a device is called, the name behind a colon left out."""


def accelerator_of(report: Report) -> str | None:
    """Return the accelerator that a report says it ran on; None for the processor."""
    device = str(report.body["environment"]["device"])
    return None if device == PROCESSOR else device


def device_words(backend: str, device: str, known: Sequence[str] = ()) -> str:
    """Return backend and device for people, in words that are not the program's own.

    Args:
        backend: as a report calls it.
        device: as a report calls it.
        known: devices that the runner found; the name of one of them is said.
    """
    library = backend if backend in _LIBRARIES else "an unnamed library"
    kind, _, name = device.partition(":")
    if device == PROCESSOR:
        return f"{library} {PROCESSOR}"
    if kind not in KINDS:
        return f"{library}, a device that nobody knows"
    return f"{library} {kind}" + (f" {name}" if any(name and name in one for one in known) else "")


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
