"""The Apple GPU, from the I/O registry as `ioreg` prints it: no root, no private framework.

Each Metal client of a process is an `AGXDeviceUserClient` below the accelerator; its `AppUsage` holds nanoseconds of
GPU time by API, its `IOUserClientCreator` the process ("pid 417, python3.13"). The accelerator's own
`PerformanceStatistics` holds the load of the whole device. Names as nvtop and Activity Monitor's like read them; Apple
documents none, so what is not there is unseen. Untested on a Mac; its tests hold samples of this form.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.parsers.expat import ExpatError

from bridge.errors import InfrastructureError
from bridge.executor.observe.accelerators.interface import GpuReading
from bridge.system.process import run

IOREG: Final = ("/usr/sbin/ioreg", "-a", "-l", "-r", "-c", "AGXAccelerator")
_TOOL_S: Final = 5.0
_OUTPUT_MAX_BYTES: Final = 32 << 20
_NS_S: Final = 1e9
_STRANGER_S: Final = 0.025  # a twentieth of the time between two samples
_DEPTH_MAX: Final = 32
_NO_PLIST: Final = (  # what plistlib raises over bytes that are none
    plistlib.InvalidFileException, ExpatError, ValueError, OverflowError, AttributeError, IndexError, TypeError
)  # fmt: skip
_CREATOR: Final = re.compile(r"pid (\d{1,10})\b")


@dataclass(frozen=True)
class Registry:
    """What one reading of the registry says.

    Attributes:
        share: busy share of the device, 0 to 1.
        memory_bytes: memory in use by the device.
        clients: by the registry's number of a client: its process and the seconds of GPU time it used.
    """

    share: float | None
    memory_bytes: int | None
    clients: Mapping[int, tuple[int, float]]


class AppleMeter:
    """Reads the Apple GPU.

    Args:
        read: returns the property list that `ioreg` prints, empty where it cannot.
    """

    source = "ioreg AGXAccelerator"

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        self._gone: dict[int, tuple[int, float]] = {}
        self._clients: dict[int, tuple[int, float]] = {}

    @classmethod
    def open(cls) -> AppleMeter | str:
        """Return a meter, or why there is none."""
        meter = cls(_ioreg)
        return meter if registry(meter._read()) is not None else "unknown: ioreg shows no AGXAccelerator"

    def read(self, pids: Collection[int]) -> GpuReading:
        """Read the GPU once; time of clients that a process has closed still counts."""
        accelerator = registry(self._read())
        if accelerator is None:
            return GpuReading()
        # Every Mac's window server is a client; who works is whose time grows.
        grown = (
            {
                pid
                for number, (pid, spent) in accelerator.clients.items()
                if number in self._clients and spent - self._clients[number][1] > _STRANGER_S
            }
            if self._clients
            else None
        )
        # A client's time goes with it; the run's has to stay.
        self._gone |= {number: client for number, client in self._clients.items() if number not in accelerator.clients}
        self._clients = dict(accelerator.clients)
        return GpuReading(
            share=accelerator.share,
            memory_bytes=accelerator.memory_bytes,
            own_s=sum(spent for pid, spent in (self._gone | self._clients).values() if pid in pids),
            strangers=None if grown is None else len(grown - set(pids)),
        )

    def conditions(self) -> Mapping[str, str]:
        """Return nothing: power mode and heat are the whole machine's on Apple Silicon."""
        return {}


def registry(text: bytes) -> Registry | None:
    """Return what `ioreg` says of the accelerator; None where it shows none or is no property list."""
    try:
        tree = plistlib.loads(text) if text else None
    except _NO_PLIST:
        return None
    entries = [entry for entry in tree if isinstance(entry, dict)] if isinstance(tree, list) else []
    if not entries:
        return None
    statistics = [row for row in (entry.get("PerformanceStatistics") for entry in entries) if isinstance(row, dict)]
    shares = [_number(row.get("Device Utilization %")) for row in statistics]
    used = [_number(row.get("In use system memory")) for row in statistics]
    percentages = [share for share in shares if share is not None]
    bytes_used = [size for size in used if size is not None]
    return Registry(
        share=min(1.0, sum(percentages) / len(percentages) / 100) if percentages else None,
        memory_bytes=int(sum(bytes_used)) if bytes_used else None,
        clients=dict(_clients(entries, _DEPTH_MAX)),
    )


def _clients(entries: list[Any], depth: int) -> Iterator[tuple[int, tuple[int, float]]]:
    for entry in entries if depth else ():
        if not isinstance(entry, dict):
            continue
        creator = _CREATOR.match(str(entry.get("IOUserClientCreator", "")))
        number, usage = entry.get("IORegistryEntryID"), entry.get("AppUsage")
        if creator and type(number) is int and isinstance(usage, list):
            spent = [_number(row.get("accumulatedGPUTime")) for row in usage if isinstance(row, dict)]
            yield number, (int(creator.group(1)), sum(time_ns for time_ns in spent if time_ns is not None) / _NS_S)
        children = entry.get("IORegistryEntryChildren")
        yield from _clients(children if isinstance(children, list) else [], depth - 1)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _ioreg() -> bytes:
    try:
        done = run(IOREG, timeout_s=_TOOL_S, max_output_bytes=_OUTPUT_MAX_BYTES)
    except InfrastructureError:
        return b""
    return done.stdout if done.ok else b""
