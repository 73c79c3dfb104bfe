"""Which CUDA a torch wheel was built for, and whether a driver has it.

Wheels name it behind their version (``2.9.1+cu128``), or by the runtime package that they need
(``nvidia-cuda-runtime-cu12``, from CUDA 13 on ``nvidia-cuda-runtime``). A driver runs what was built for its own major
version or an older one; within a major version newer builds run as well, without what only a newer driver can compile
(docs.nvidia.com/deploy/cuda-compatibility, "Minor Version Compatibility").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

Version = tuple[int, int]
_LOCAL: Final = re.compile(r"\+cu(\d{2,3})$")
_RUNTIMES: Final = ("nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime")


def wheel_cuda(packages: Mapping[str, str]) -> Version | Literal["cpu"] | None:
    """Return the CUDA that torch was built for, ``cpu`` for a build without, None where nothing says so."""
    torch = packages.get("torch")
    if torch is None:
        return None
    if torch.endswith("+cpu"):
        return "cpu"
    if (local := _LOCAL.search(torch)) is not None:
        return int(local[1][:-1]), int(local[1][-1])
    found = next((packages[name] for name in _RUNTIMES if name in packages), None)
    return None if found is None else _version(found)


def driver_cuda(drivers: Mapping[str, str]) -> Version | None:
    """Return the newest CUDA that the driver knows, None where nobody says so."""
    return _version(drivers.get("cuda", ""))


def older_driver(packages: Mapping[str, str], drivers: Mapping[str, str]) -> tuple[Version, Version] | None:
    """Return the CUDA of driver and wheel where the driver's is the older one, else None."""
    wheel, driver = wheel_cuda(packages), driver_cuda(drivers)
    if not isinstance(wheel, tuple) or driver is None or driver >= wheel:
        return None
    return driver, wheel


def _version(text: str) -> Version | None:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])
