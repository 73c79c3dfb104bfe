"""What the machine was doing while a run ran, sampled from outside the workload.

Knows nothing about limits. Where a platform offers no source, the value is None or `unknown`, and `sources` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psutil

from bridge.executor.observe import condition, machine_state
from bridge.executor.observe.accelerators.find import find_meter
from bridge.executor.observe.accelerators.interface import GpuMeter, GpuReading
from bridge.executor.observe.machine_state import MachineState
from bridge.executor.processes.tree import Usage
from bridge.records.run import Telemetry, TelemetrySample

INTERVAL_S: Final = 0.5
_SAMPLES_MAX: Final = 600


@dataclass(frozen=True)
class MachineTimes:
    """Seconds of all processors since the start of the machine, from one reading."""

    busy_s: float
    total_s: float


def machine_times() -> MachineTimes:
    """Read what the kernel has counted."""
    times = psutil.cpu_times()
    # Guest time is part of user time on Linux and would count twice.
    total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return MachineTimes(total_s - times.idle - getattr(times, "iowait", 0.0), total_s)


class Sampler:
    """Collects the samples of one run at an interval that doubles when there get to be too many."""

    def __init__(
        self,
        gpu: GpuMeter | str | None = None,
        machine: Callable[[], MachineTimes] = machine_times,
        look: Callable[[GpuMeter | str], MachineState] = machine_state.look,
    ) -> None:
        """Begin.

        Args:
            gpu: reads the devices; a text says why nothing does; None looks for a driver.
            machine: reads the processors.
            look: looks at what the machine is set to, and how long it has slept.
        """
        self._gpu, self._look = find_meter() if gpu is None else gpu, look
        self._before, self._state = condition.read(), look(self._gpu)
        self._samples: list[TelemetrySample] = []
        self._interval_s = INTERVAL_S
        self._due_s = 0.0
        self._machine = machine
        self._last: tuple[float, MachineTimes] | None = None  # the tree's processor seconds, the machine's

    def usage(self, t_s: float, usage: Usage) -> None:
        """Take a measurement of the process tree; keep it when the next sample is due."""
        if t_s < self._due_s:
            return
        self._due_s = t_s + self._interval_s
        own, other = self._shares(usage.cpu_s, self._machine())
        gpu = GpuReading() if isinstance(self._gpu, str) else self._gpu.read(usage.pids)
        self._samples.append(
            TelemetrySample(
                t_s=t_s,
                cpu_share=own,
                other_cpu_share=other,
                rss_bytes=usage.rss_bytes,
                gpu_share=gpu.share,
                gpu_memory_bytes=gpu.memory_bytes,
                gpu_own_s=gpu.own_s,
                gpu_strangers=gpu.strangers,
            )
        )
        if len(self._samples) > _SAMPLES_MAX:
            del self._samples[1::2]
            self._interval_s *= 2

    def _shares(self, cpu_s: float, machine: MachineTimes) -> tuple[float | None, float | None]:
        """Return the shares of the machine that the run and others had since the last reading, None where unknown."""
        last, self._last = self._last, (cpu_s, machine)
        if last is None or machine.total_s <= last[1].total_s or cpu_s < last[0]:
            return None, None
        # Busy and idle are of one reading: on a busy machine any other clock is read some time later.
        total_s = machine.total_s - last[1].total_s
        busy = min(1.0, max(0.0, (machine.busy_s - last[1].busy_s) / total_s))
        own = min(busy, (cpu_s - last[0]) / total_s)  # of what the machine did; the run was read a moment earlier
        return own, busy - own

    def record(self) -> Telemetry:
        """Return what was sampled, with the machine's condition before and now."""
        after, state = condition.read(), self._look(self._gpu)
        before = self._before
        return Telemetry(
            interval_s=self._interval_s,
            sources={
                "cpu_share": "psutil, the processes of the run, dead ones included, over all processors",
                "other_cpu_share": "psutil, whole machine less the run",
                "rss_bytes": "psutil, sum over living processes",
                "gpu": self._gpu if isinstance(self._gpu, str) else self._gpu.source,
                "thermal": after.thermal.source,
                "power": after.power.source,
                "memory_pressure": after.memory_pressure.source,
            },
            samples=tuple(self._samples),
            thermal=(before.thermal.value, after.thermal.value),
            power=(before.power.value, after.power.value),
            memory_pressure=(before.memory_pressure.value, after.memory_pressure.value),
            conditions=machine_state.changed(self._state, state),
            slept_s=machine_state.slept_s(self._state, state),
        )
