"""NVIDIA devices through NVML: https://docs.nvidia.com/deploy/nvml-api/.

Untested on a card; its tests hold samples of the documented structures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from bridge.executor.observe.accelerators.interface import GpuReading

_US_S: Final = 1e6


class NvidiaMeter:
    """Reads NVIDIA devices.

    Args:
        library: the binding, `pynvml`.
        handles: the devices of the run.
    """

    source = "nvml"

    def __init__(self, library: Any, handles: Sequence[Any]) -> None:
        self._library = library
        self._handles = tuple(handles)
        self._seen_us = [0] * len(self._handles)
        self._busy_s: list[dict[int, float]] = [{} for _ in self._handles]

    @classmethod
    def open(cls, given: Collection[str] | None = None) -> NvidiaMeter | str:
        """Return a meter over a run's devices, or why there is none.

        Args:
            given: their numbers or UUIDs, as in `CUDA_VISIBLE_DEVICES`; None for all.
        """
        try:
            import pynvml
        except ImportError:
            return "unknown: no NVML binding is installed (nvidia-ml-py)"
        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
            names = [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        except pynvml.NVMLError as error:
            return f"unknown: NVML says {error}"
        chosen = [
            handle
            for index, (handle, uuid) in enumerate(zip(handles, names, strict=True))
            if given is None or str(index) in given or any(prefix and uuid.startswith(prefix) for prefix in given)
        ]
        if not handles:
            return "unknown: NVML sees no device"
        named = ", ".join(sorted(given or ())) or "the devices that the run got: it got none"
        return cls(pynvml, chosen) if chosen else f"unknown: NVML sees none of {named}"

    def read(self, pids: Collection[int]) -> GpuReading:
        """Read the devices once.

        NVML keeps some seconds of samples, each the mean share of the multiprocessors that a process had since the
        sample before it; a card in MIG mode, or a driver in a container, has none. The other processes are those that
        hold a compute context.
        """
        shares: list[float] = []
        used: list[int] = []
        clients: set[int] = set()
        listed = False
        for handle in self._handles:
            with contextlib.suppress(self._library.NVMLError):
                shares.append(float(self._library.nvmlDeviceGetUtilizationRates(handle).gpu) / 100)
            with contextlib.suppress(self._library.NVMLError):
                used.append(int(self._library.nvmlDeviceGetMemoryInfo(handle).used))
            with contextlib.suppress(self._library.NVMLError):
                clients |= {int(process.pid) for process in self._library.nvmlDeviceGetComputeRunningProcesses(handle)}
                listed = True
        return GpuReading(
            share=sum(shares) / len(shares) if shares else None,
            memory_bytes=sum(used) if used else None,
            own_s=self._own_s(pids),
            strangers=len(clients - set(pids)) if listed else None,
        )

    def conditions(self) -> Mapping[str, str]:
        """Return the state of each card, as `gpu0.slowed_by`."""
        return {
            f"gpu{place}.{name}": value
            for place, handle in enumerate(self._handles)
            for name, value in conditions(self._library, handle).items()
        }

    def _own_s(self, pids: Collection[int]) -> float | None:
        added = [self._add(place) for place in range(len(self._handles))]
        if not any(added):
            return None
        return sum(spent for busy in self._busy_s for pid, spent in busy.items() if pid in pids)

    def _add(self, place: int) -> bool:
        """Add the samples since the last reading of one device; return whether it keeps any."""
        busy, since_us = self._busy_s[place], self._seen_us[place]
        try:
            samples = self._library.nvmlDeviceGetProcessUtilization(self._handles[place], since_us)
        except self._library.NVMLError as error:
            # NVML says "not found" where no process did anything since the last sample.
            return isinstance(error, getattr(self._library, "NVMLError_NotFound", ()))
        last_us = max((int(sample.timeStamp) for sample in samples), default=since_us)
        for sample in samples:
            if since_us and int(sample.timeStamp) > since_us:
                spent_s = float(sample.smUtil) / 100 * (int(sample.timeStamp) - since_us) / _US_S
                busy[int(sample.pid)] = busy.get(int(sample.pid), 0.0) + spent_s
        self._seen_us[place] = last_us
        return True


def conditions(library: Any, handle: Any) -> dict[str, str]:
    """Return what of a card's state changes how fast it is, by name; what it does not say is left out."""
    readers: dict[str, Callable[[], str]] = {
        "persistence": lambda: "on" if library.nvmlDeviceGetPersistenceMode(handle) else "off",
        "ecc": lambda: "on" if library.nvmlDeviceGetEccMode(handle)[0] else "off",
        "mig": lambda: "on" if library.nvmlDeviceGetMigMode(handle)[0] else "off",
        "sm_clock": lambda: f"{library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)} MHz",
        "power_limit": lambda: f"{library.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000:.0f} W",
        "slowed_by": lambda: slowed_by(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    }
    values: dict[str, str] = {}
    for name, reader in readers.items():
        with contextlib.suppress(library.NVMLError):
            values[name] = reader()
    return values


# Bits of nvmlClocksThrottleReasons (nvml.h); those of an idle card and of clocks that an owner set slow nothing down.
_SLOWING: Final = {
    0x4: "its power cap",
    0x8: "a hardware slowdown",
    0x10: "its sync boost group",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "the power brake",
}


def slowed_by(bits: int) -> str:
    """Return what slows a card's clocks down, `nothing` where nothing does."""
    return ", ".join(text for bit, text in _SLOWING.items() if bits & bit) or "nothing"


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
