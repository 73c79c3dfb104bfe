"""What the kit reads: each source cut down to the form that our parsers read, so that nothing else leaves the machine.

A source is asked for where its system has it. What a machine has and does not answer is said, as is what it has not.
"""

from __future__ import annotations

import plistlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.executor.observe.accelerators.apple import IOREG, registry
from bridge.executor.observe.condition import file_text, tool_output
from bridge.system.process import run

_REGISTRY_KEYS = ("IORegistryEntryID", "PerformanceStatistics", "AppUsage", "IOUserClientCreator", "IOClass")
_STATISTICS = ("Device Utilization %", "In use system memory")
_USAGE = ("API", "accumulatedGPUTime")
_UPDATES = ("/Library/Preferences/com.apple.SoftwareUpdate", "AutomaticallyInstallMacOSUpdates")


@dataclass(frozen=True)
class Source:
    """One thing that is read.

    Attributes:
        name: the command or file, as the report names it.
        system: ``darwin`` or ``linux``.
        read: returns what it says, empty where it says nothing.
        keep: the lines that are kept; everything else may be somebody's own.
    """

    name: str
    system: str
    read: Callable[[], Any]
    keep: str | None = None

    def taken(self) -> Any:
        """Return what is kept of what it says."""
        output = self.read()
        if self.keep is None:
            return output
        return "\n".join(line[: m.end()] for line in str(output).splitlines() if (m := re.match(self.keep, line)))


def _tool(system: str, *argv: str, keep: str) -> Source:
    return Source(" ".join((Path(argv[0]).name, *argv[1:])), system, lambda: tool_output(*argv), keep)


def _file(path: str, keep: str) -> Source:
    return Source(path, "linux", lambda: file_text(Path(path)), keep)


def ioreg() -> list[dict[str, Any]]:
    """Return the I/O registry's accelerators, cut down to what the meter reads."""
    done = run(IOREG, timeout_s=5.0, max_output_bytes=32 << 20)
    return reduced_registry(done.stdout) if done.ok else []


def reduced_registry(text: bytes) -> list[dict[str, Any]]:
    """Return a property list of accelerators without a name of a program or a number of the machine in it.

    Process ids stay, and of programs only whether it is a Python: whose desktop it is says nothing about a meter.
    """
    if registry(text) is None:
        return []
    return [_reduced(entry) for entry in plistlib.loads(text) if isinstance(entry, dict)]


def _reduced(entry: dict[str, Any]) -> dict[str, Any]:
    reduced = {name: entry[name] for name in _REGISTRY_KEYS if name in entry}
    if isinstance(statistics := reduced.get("PerformanceStatistics"), dict):
        reduced["PerformanceStatistics"] = {name: statistics[name] for name in _STATISTICS if name in statistics}
    if isinstance(usage := reduced.get("AppUsage"), list):
        reduced["AppUsage"] = [{name: use[name] for name in _USAGE if name in use} for use in usage]
    creator = re.match(r"pid (\d+), (python)?", str(reduced.get("IOUserClientCreator", "")), re.IGNORECASE)
    if creator is not None:
        reduced["IOUserClientCreator"] = f"pid {creator[1]}, {'python' if creator[2] else 'another'}"
    else:
        reduced.pop("IOUserClientCreator", None)
    children = entry.get("IORegistryEntryChildren")
    if isinstance(children, list):
        reduced["IORegistryEntryChildren"] = [_reduced(child) for child in children if isinstance(child, dict)]
    return reduced


def nvml() -> list[dict[str, Any]]:
    """Return what NVML says of each card, by the calls that the meter makes; an error is its text."""
    try:
        import pynvml  # noqa: PLC0415 - not everywhere
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(place) for place in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
    return [dict(_card(pynvml, handle)) for handle in handles]


def _card(library: Any, handle: Any) -> Iterator[tuple[str, Any]]:
    calls: dict[str, Callable[[], Any]] = {
        "nvmlDeviceGetName": lambda: library.nvmlDeviceGetName(handle),
        "nvmlDeviceGetMinorNumber": lambda: library.nvmlDeviceGetMinorNumber(handle),
        "nvmlSystemGetDriverVersion": library.nvmlSystemGetDriverVersion,
        "nvmlSystemGetCudaDriverVersion": library.nvmlSystemGetCudaDriverVersion,
        "nvmlDeviceGetUtilizationRates": lambda: library.nvmlDeviceGetUtilizationRates(handle).gpu,
        "nvmlDeviceGetMemoryInfo": lambda: {
            name: getattr(library.nvmlDeviceGetMemoryInfo(handle), name) for name in ("total", "free", "used")
        },
        "nvmlDeviceGetComputeRunningProcesses": lambda: len(library.nvmlDeviceGetComputeRunningProcesses(handle)),
        "nvmlDeviceGetProcessUtilization": lambda: [
            {"smUtil": sample.smUtil, "timeStamp": sample.timeStamp}
            for sample in library.nvmlDeviceGetProcessUtilization(handle, 0)
        ],
        "nvmlDeviceGetPersistenceMode": lambda: library.nvmlDeviceGetPersistenceMode(handle),
        "nvmlDeviceGetEccMode": lambda: library.nvmlDeviceGetEccMode(handle),
        "nvmlDeviceGetMigMode": lambda: library.nvmlDeviceGetMigMode(handle),
        "nvmlDeviceGetClockInfo": lambda: library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM),
        "nvmlDeviceGetEnforcedPowerLimit": lambda: library.nvmlDeviceGetEnforcedPowerLimit(handle),
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda: library.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }
    for name, call in calls.items():
        try:
            value = call()
        except library.NVMLError as error:
            value = f"error: {error}"
        yield name, value.decode() if isinstance(value, bytes) else value


SETTING = r"\s*[A-Za-z]+\s+\d+(?=\s|$)"
_THERMAL = "com.apple.system.thermalpressurelevel"
SOURCES = (
    Source("ioreg AGXAccelerator", "darwin", ioreg),
    _tool("darwin", "/usr/bin/pmset", "-g", keep=SETTING),
    _tool("darwin", "/usr/bin/notifyutil", "-g", _THERMAL, keep=rf"{_THERMAL} \d+$"),
    _tool("darwin", "/usr/bin/pmset", "-g", "batt", keep=r"Now drawing from '[A-Za-z ]+'"),
    _tool("darwin", "/usr/bin/pmset", "-g", "assertions", keep=SETTING),
    _tool("darwin", "/usr/bin/fdesetup", "status", keep=r"FileVault is (?:On|Off)\b"),
    _tool("darwin", "/usr/bin/defaults", "read", *_UPDATES, keep=r"\d+$"),
    _tool("darwin", "/usr/sbin/sysctl", "-n", "kern.memorystatus_vm_pressure_level", keep=r"\d+$"),
    _tool("darwin", "/usr/sbin/sysctl", "-n", "iogpu.wired_limit_mb", keep=r"\d+$"),
    _tool("darwin", "/usr/sbin/sysctl", "-n", "hw.memsize", keep=r"\d+$"),
    Source("nvml", "linux", nvml),
    _file("/proc/pressure/memory", keep=r"(?:some|full) avg10=[0-9.]+.*$"),
    _file("/sys/firmware/acpi/platform_profile", keep=r"[a-z-]+$"),
    _file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", keep=r"\d+$"),
)


def read_all() -> tuple[dict[str, Any], dict[str, str]]:
    """Return what each source says, and of those that say nothing why."""
    raw: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for source in SOURCES:
        output = source.taken() if source.system == sys.platform else None
        if output is None:
            absent[source.name] = f"of {'macOS' if source.system == 'darwin' else 'Linux'} only"
        elif not output:
            absent[source.name] = "this machine has none, or it does not say"
        else:
            raw[source.name] = output
    return raw, absent
