"""A cgroup v2 of its own for each command, where the host lets us make one.

It kills everything inside at once, whatever the processes did to hide. Memory and process bounds are set only where the
parent has those controllers enabled for its children; the executor's own sampling holds the bounds elsewhere. Never
moves the runner itself.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final

from bridge.system.clock import SystemClock

_CLOCK: Final = SystemClock()
_EMPTY_S: Final = 5.0


class Cgroup:
    """One command's group; the files are the kernel's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bounds: tuple[str, ...] = ()

    @classmethod
    def create(cls, name: str, *, memory_bytes: int, processes: int) -> Cgroup | str:
        """Make a group below our own, or say why there is none."""
        parent = _own_group()
        if isinstance(parent, str):
            return parent
        group = cls(parent / f"kakeya-{name}")
        try:
            group.path.mkdir()
        except OSError as error:
            return f"cannot create a cgroup below {parent}: {error.strerror}"
        if not (group.path / "cgroup.kill").exists():
            group.remove()
            return "this kernel's cgroups have no cgroup.kill (Linux 5.14 or later has it)"
        group.bounds = tuple(
            file
            for file, value in (("memory.max", memory_bytes), ("memory.swap.max", 0), ("pids.max", processes))
            if group._bound(file, value)
        )
        return group

    def _bound(self, file: str, value: int) -> bool:
        if not (self.path / file).exists():
            return False
        try:
            (self.path / file).write_text(str(value))
        except OSError:
            return False
        return True

    def members(self) -> list[int]:
        """Return the ids of the processes inside."""
        try:
            return [int(line) for line in (self.path / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def kill(self) -> None:
        """Kill everybody inside, forks in flight included."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")

    def hits(self) -> dict[str, int]:
        """Return how often the kernel enforced each bound: `memory` (kills) and `processes` (refused forks)."""
        found = {}
        for name, file, key in (("memory", "memory.events", "oom_kill"), ("processes", "pids.events", "max")):
            with contextlib.suppress(OSError, ValueError):
                counts = dict(line.split() for line in (self.path / file).read_text().splitlines())
                found[name] = int(counts.get(key, 0))
        return found

    def remove(self) -> int:
        """Kill what is left, wait for it, remove the group; return how many would not go."""
        deadline = _CLOCK.steady_s() + _EMPTY_S
        while self.members() and _CLOCK.steady_s() < deadline:
            self.kill()
            _CLOCK.sleep(0.005)
        left = len(self.members())
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return left


def _own_group() -> Path | str:
    """Return the directory of our own v2 group, or why there is none."""
    if sys.platform != "linux":
        return f"{sys.platform} has no cgroups"
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError as error:
        return f"cannot read our own cgroup: {error.strerror}"
    mount = next((fields[1] for fields in mounts if fields[2] == "cgroup2"), None)
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if mount is None or own is None:
        return "no cgroup v2 hierarchy is mounted"
    return Path(mount) / own.lstrip("/")
