"""Find the meter of this machine's accelerators."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from typing import Final

from bridge.executor.observe.accelerators.apple import AppleMeter
from bridge.executor.observe.accelerators.interface import GpuMeter
from bridge.executor.observe.accelerators.nvidia import NvidiaMeter
from bridge.records.jobspec import EnvironmentVariable

VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"


def find_meter(given: Collection[str] | None = None) -> GpuMeter | str:
    """Return a meter over the devices that a run was given, or why there is none.

    Args:
        given: numbers or UUIDs of NVIDIA devices; None for all that the machine has.
    """
    return AppleMeter.open() if sys.platform == "darwin" else NvidiaMeter.open(given)


def given_devices(environment: Iterable[EnvironmentVariable]) -> tuple[str, ...] | None:
    """Return the NVIDIA devices that a run's environment gives it; None where it gives all."""
    for variable in environment:
        if variable.name == VISIBLE_DEVICES:
            return visible(variable.value)
    return None


def visible(value: str) -> tuple[str, ...]:
    """Return the numbers and UUIDs that a value of CUDA_VISIBLE_DEVICES lists."""
    return tuple(device.strip() for device in value.split(",") if device.strip())
