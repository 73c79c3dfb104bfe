"""Thermal state, power source and memory pressure of the machine, from whatever the platform offers.

Knows nothing about runs. `unknown` is a value; a guess is not.
"""

from __future__ import annotations

import contextlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bridge.errors import InfrastructureError
from bridge.system.process import run

UNKNOWN: Final = "unknown"
_TOOL_S: Final = 5.0
_THERMAL_LEVEL: Final = "com.apple.system.thermalpressurelevel"


@dataclass(frozen=True)
class Reading:
    """A value for people and the gate, and where it came from; both `unknown` without a source."""

    value: str = UNKNOWN
    source: str = UNKNOWN


@dataclass(frozen=True)
class Condition:
    """The machine's condition at one moment."""

    thermal: Reading
    power: Reading
    memory_pressure: Reading


def read() -> Condition:
    """Read the machine's condition now."""
    if sys.platform == "darwin":
        return Condition(
            thermal=thermal_from_notifyutil(tool_output("/usr/bin/notifyutil", "-g", _THERMAL_LEVEL)),
            power=power_from_pmset(tool_output("/usr/bin/pmset", "-g", "batt")),
            memory_pressure=pressure_from_sysctl(
                tool_output("/usr/sbin/sysctl", "-n", "kern.memorystatus_vm_pressure_level")
            ),
        )
    return Condition(_thermal_linux(), _power_linux(), pressure_from_psi(file_text(Path("/proc/pressure/memory"))))


def tool_output(*argv: str) -> str:
    """Return what a small system program prints, or nothing when it cannot."""
    with contextlib.suppress(InfrastructureError):
        done = run(argv, timeout_s=_TOOL_S, max_output_bytes=65536)
        if done.ok:
            return done.stdout.decode("utf-8", "replace")
    return ""


def file_text(path: Path) -> str:
    """Return what a small file of the system holds, or nothing when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def thermal_from_notifyutil(text: str) -> Reading:
    """Read `notifyutil -g` of the thermal pressure level, whose names are those of Darwin's OSThermalNotification.h.

    `pmset -g therm` reports the processor limits of Intel's Macs: on Apple Silicon it says the same whatever happens.
    """
    match = re.fullmatch(rf"{re.escape(_THERMAL_LEVEL)} (\d)\s*", text)
    names = ("nominal", "moderate", "heavy", "trapping", "sleeping")
    if match is None or int(match.group(1)) >= len(names):
        return Reading()
    return Reading(names[int(match.group(1))], f"notifyutil {_THERMAL_LEVEL}")


def power_from_pmset(text: str) -> Reading:
    """Read `pmset -g batt`: mains or battery."""
    match = re.search(r"drawing from '([A-Za-z ]+)'", text)
    if match is None:
        return Reading()
    return Reading(
        {"AC Power": "mains", "Battery Power": "battery"}.get(match.group(1), match.group(1)), "pmset -g batt"
    )


def pressure_from_sysctl(text: str) -> Reading:
    """Read macOS's memory pressure level: 1 normal, 2 warning, 4 critical."""
    level = {"1": "normal", "2": "warning", "4": "critical"}.get(text.strip())
    return Reading() if level is None else Reading(level, "sysctl kern.memorystatus_vm_pressure_level")


def pressure_from_psi(text: str) -> Reading:
    """Read Linux's pressure stall information: share of the last ten seconds in which some task waited for memory."""
    match = re.search(r"^some avg10=([0-9.]+)", text, re.MULTILINE)
    return Reading() if match is None else Reading(f"some {match.group(1)} % of 10 s", "/proc/pressure/memory")


def _thermal_linux() -> Reading:
    """Return the hottest sensor."""
    sensors = getattr(psutil, "sensors_temperatures", None)
    with contextlib.suppress(OSError, ValueError):
        readings = [
            entry.current for group in (sensors() if sensors else {}).values() for entry in group if entry.current
        ]
        if readings:
            return Reading(f"hottest sensor {max(readings):.0f} C", "psutil sensors_temperatures")
    return Reading()


def _power_linux() -> Reading:
    """Return whether the machine is on mains."""
    online = [file_text(path).strip() for path in sorted(Path("/sys/class/power_supply").glob("*/online"))]
    if not online:
        return Reading()
    return Reading("mains" if "1" in online else "battery", "/sys/class/power_supply")
