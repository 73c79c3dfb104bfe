"""Time on torch: a reading waits for the device."""

from __future__ import annotations

import time

import torch


class TorchClock:
    """Monotonic nanoseconds of one device; a CPU has nothing to wait for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def eager(self) -> bool:
        """True on a CPU; a CUDA call only queues kernels."""
        return self._device.type == "cpu"

    def now_ns(self) -> int:
        """Wait for every stream of the device, then read the clock."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter_ns()

    def host_ns(self) -> int:
        """Read the clock without waiting."""
        return time.perf_counter_ns()
