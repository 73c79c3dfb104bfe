"""Control groups of its own for each command, where the host lets us make them.

A version 2 group kills everything inside at once, whatever the processes did to hide. Memory and process bounds are set
where the parent has those controllers enabled for its children, the process bound also by a version 1 group on hosts
that have it; the executor's own sampling holds the bounds elsewhere. A run weighs half of what others do when a
processor is wanted by both, however many threads it has. Never moves the runner itself.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.system.clock import SystemClock

_CLOCK: Final = SystemClock()
_EMPTY_S: Final = 5.0
_FURTHER: Final = {
    "pids": "pids.max",
    "cpu": "cpu.weight",
}  # version 1 hierarchies, used where version 2 lacks the file
_WEIGHTS: Final = {"cpu.weight": 50, "cpu.shares": 512}  # half of each version's default


@dataclass(frozen=True)
class NoCgroup:
    """The place of a control group where there is none: nobody is in it, and it bounds nothing.

    Attributes:
        reason: why there is none.
    """

    reason: str
    paths: Sequence[Path] = ()
    weight: str | None = None

    def members(self) -> list[int]:
        """Return nobody."""
        return []

    def kill(self) -> None:
        """Do nothing: the scan of processes has to do."""

    def hits(self) -> dict[str, int]:
        """Return nothing: the kernel bounds no group."""
        return {}

    def remove(self) -> int:
        """Return 0: there is nothing to remove."""
        return 0


class Cgroup:
    """The control groups of one command.

    Attributes:
        paths: directories the command joins, the version 2 one first.
        bounds: names of the bounds the kernel holds.
        weight: what the command weighs against others, or None where the kernel weighs no groups.
    """

    def __init__(self, path: Path) -> None:
        self.paths = [path]
        self.bounds: list[str] = []
        self.weight: str | None = None

    @classmethod
    def create(cls, name: str, *, memory_bytes: int, threads: int) -> Cgroup | NoCgroup:
        """Make a group below our own, or say why there is none."""
        parents = _own_groups()
        if isinstance(parents, NoCgroup):
            return parents
        group = cls(parents[""] / f"kakeya-{name}")
        try:
            group.paths[0].mkdir()
        except OSError as error:
            return NoCgroup(f"cannot create a cgroup below {parents['']}: {error.strerror}")
        if not (group.paths[0] / "cgroup.kill").exists():
            group.remove()
            return NoCgroup("this kernel's cgroups have no cgroup.kill (Linux 5.14 or later has it)")
        for controller in [name for name, file in _FURTHER.items() if not (group.paths[0] / file).exists()]:
            if controller in parents:
                with contextlib.suppress(OSError):
                    (parents[controller] / f"kakeya-{name}").mkdir()
                    group.paths.append(parents[controller] / f"kakeya-{name}")
        group._bound("memory.max", memory_bytes)
        group._bound("memory.swap.max", 0)
        group._bound("pids.max", threads)
        for file, weight in _WEIGHTS.items():
            group._bound(file, weight)
            group.weight = f"{file} {weight}" if file in group.bounds else group.weight
        return group

    @classmethod
    def leftovers(cls, prefix: str) -> list[Cgroup]:
        """Return the groups that an earlier runner made for a run and did not live to remove."""
        parents = _own_groups()
        if isinstance(parents, NoCgroup):
            return []
        return [cls(path) for parent in parents.values() for path in sorted(parent.glob(f"kakeya-{prefix}-*"))]

    def _bound(self, file: str, value: int) -> None:
        for path in self.paths:
            if (path / file).exists():
                with contextlib.suppress(OSError):
                    (path / file).write_text(str(value))
                    self.bounds.append(file)

    def members(self) -> list[int]:
        """Return the ids of the processes inside."""
        try:
            return [int(line) for line in (self.paths[0] / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def kill(self) -> None:
        """Kill every process inside, those that are being forked included."""
        with contextlib.suppress(OSError):
            (self.paths[0] / "cgroup.kill").write_text("1")

    def hits(self) -> dict[str, int]:
        """Return how often the kernel enforced each bound: `memory` and `tasks` (refused forks)."""
        hits = {}
        for name, file, key in (("memory", "memory.events", "oom"), ("tasks", "pids.events", "max")):
            for path in self.paths:
                with contextlib.suppress(OSError, ValueError):
                    counts = dict(line.split() for line in (path / file).read_text().splitlines())
                    hits[name] = int(counts.get(key, 0))
        return hits

    def remove(self) -> int:
        """Kill what is left, wait for it, remove the groups; return how many would not go."""
        deadline = _CLOCK.steady_s() + _EMPTY_S
        while self.members() and _CLOCK.steady_s() < deadline:
            self.kill()
            _CLOCK.sleep(0.005)
        left = len(self.members())
        for path in self.paths:
            # A version 1 group stays busy until the last of its dead has been collected.
            while not _removed(path) and _CLOCK.steady_s() < deadline:
                _CLOCK.sleep(0.005)
        return left


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _own_groups() -> dict[str, Path] | NoCgroup:
    """Return the directories of our own groups: version 2's without a name, version 1's by their controller."""
    if sys.platform != "linux":
        return NoCgroup(f"{sys.platform} has no cgroups")
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError as error:
        return NoCgroup(f"cannot read our own cgroup: {error.strerror}")
    groups = {}
    for controller in ("", *_FURTHER):
        kind = "cgroup" if controller else "cgroup2"
        mount = next((fields[1] for fields in mounts if _is_mount(fields, kind, controller)), None)
        path = next((fields[2] for fields in own if controller in fields[1].split(",")), None)
        if mount is not None and path is not None:
            groups[controller] = Path(mount) / path.lstrip("/")
        elif not controller:
            return NoCgroup("no cgroup version 2 hierarchy is mounted")
    return groups


def _is_mount(fields: list[str], kind: str, controller: str) -> bool:
    """Whether a line of the mount table is the hierarchy of this version with this controller."""
    return fields[2] == kind and (not controller or controller in fields[3].split(","))
