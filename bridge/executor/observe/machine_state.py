"""What a machine was set to and did while a run was on it: power mode, swap, sleep, the state of its cards.

Beside `condition`, whose three values every host has. What a platform does not tell is left out.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bridge.executor.observe import condition
from bridge.executor.observe.accelerators.interface import GpuMeter
from bridge.records.run import MachineCondition

_PROFILE: Final = Path("/sys/firmware/acpi/platform_profile")
_LOW: Final = {"low-power": "on", "cool": "on", "quiet": "on", "balanced": "off", "performance": "off"}


@dataclass(frozen=True)
class MachineState:
    """One look.

    Attributes:
        values: by name, the value and where it came from.
        suspended_s: how long the machine has slept since it started; None where the platform does not say.
    """

    values: Mapping[str, tuple[str, str]]
    suspended_s: float | None


def look(meter: GpuMeter | str) -> MachineState:
    """Look at the machine now."""
    values: dict[str, tuple[str, str]] = {}
    if sys.platform == "darwin":
        mode, source = low_power_from_pmset(condition.tool_output("/usr/bin/pmset", "-g")), "pmset -g"
    else:
        mode, source = low_power_from_profile(condition.file_text(_PROFILE)), str(_PROFILE)
    if mode is not None:
        values["low_power"] = (mode, source)
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        values["swap_used"] = (f"{psutil.swap_memory().used} bytes", "psutil swap_memory")
    if not isinstance(meter, str):
        values |= {name: (value, meter.source) for name, value in meter.conditions().items()}
    return MachineState(values, suspended_s())


def changed(before: MachineState, after: MachineState) -> tuple[MachineCondition, ...]:
    """Return the conditions that both looks know, by name."""
    return tuple(
        MachineCondition(name=name, before=before.values[name][0], after=value, source=source)
        for name, (value, source) in sorted(after.values.items())
        if name in before.values
    )


def slept_s(before: MachineState, after: MachineState) -> float | None:
    """Return how long the machine slept between two looks; None where the platform does not say."""
    if before.suspended_s is None or after.suspended_s is None:
        return None
    return max(0.0, after.suspended_s - before.suspended_s)


def suspended_s(read: Callable[[int], float] = time.clock_gettime) -> float | None:
    """Return how long the machine has slept since it started; None where the platform has no two clocks to compare.

    Linux's CLOCK_BOOTTIME and macOS's CLOCK_MONOTONIC count through sleep, CLOCK_MONOTONIC and CLOCK_UPTIME_RAW do not
    (clock_gettime(2), clock_gettime(3)).

    Args:
        read: reads a clock by its number.
    """
    awake = getattr(time, "CLOCK_UPTIME_RAW", None) if sys.platform == "darwin" else time.CLOCK_MONOTONIC
    through = time.CLOCK_MONOTONIC if sys.platform == "darwin" else getattr(time, "CLOCK_BOOTTIME", None)
    if awake is None or through is None:
        return None
    # Who is held up between the two readings sees less sleep, and more at the next look: the most of three is taken.
    return max(0.0, *(read(through) - read(awake) for _ in range(3)))


def low_power_from_pmset(text: str) -> str | None:
    """Read Low Power Mode from `pmset -g`: `lowpowermode`, or `powermode` where 1 is low and 2 is high."""
    match = re.search(r"^\s*(?:lowpowermode|powermode)\s+(\d+)\s*$", text, re.MULTILINE)
    return None if match is None else "on" if match.group(1) == "1" else "off"


def low_power_from_profile(text: str) -> str | None:
    """Read Linux's platform profile (Documentation/ABI/testing/sysfs-platform_profile)."""
    return _LOW.get(text.strip())
