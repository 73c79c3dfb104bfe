"""What every meter of accelerators tells: load and memory of the devices, and who kept them busy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class GpuReading:
    """One reading of the devices of a run; None where nobody says.

    Attributes:
        share: mean busy share of the devices, 0 to 1, whoever works on them.
        memory_bytes: memory in use on them.
        own_s: for how many seconds the asked-for processes have kept them busy so far; two devices busy for a second
            are two. Only differences between readings of one meter mean something.
        strangers: how many other processes have work on them now.
    """

    share: float | None = None
    memory_bytes: int | None = None
    own_s: float | None = None
    strangers: int | None = None


class GpuMeter(Protocol):
    """Reads the devices of one maker."""

    @property
    def source(self) -> str:
        """Name where the readings come from."""
        ...

    def read(self, pids: Collection[int]) -> GpuReading:
        """Read the devices once.

        Args:
            pids: the processes of the run, as the host numbers them.
        """
        ...

    def conditions(self) -> Mapping[str, str]:
        """Return what of the devices' state changes how fast they are, by name; empty where nobody says."""
        ...
