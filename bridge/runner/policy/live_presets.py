"""The presets of a host while its runner serves: a preset file or a workload that its owner edits is read anew.

What is wrong when the runner starts stops it; what becomes wrong later is not offered until it is right again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bridge.errors import KakeyaError
from bridge.presets.installed import registry
from bridge.presets.model import Preset
from bridge.presets.workloads.digests import files_of
from bridge.runner.policy.model import Policy
from bridge.runner.policy.preset_folder import PresetFolder
from bridge.runner.policy.workloads import allowed, checked, offered
from bridge.system.clock import Clock


class LivePresets(Mapping[str, Preset]):
    """Installed presets and the owner's own by name, as they are now.

    Args:
        policy: says where the owner's own are.
        clock: says how long a file was left alone.
        say: takes a line for the owner about a preset file that changed.

    Raises:
        UsageError: at the start, a preset file or a workload has a mistake.
    """

    def __init__(self, policy: Policy, clock: Clock, say: Callable[[str], None] = lambda _line: None) -> None:
        self._policy, self._lock = policy, threading.Lock()
        self._folder = PresetFolder(policy.presets.folder, registry(), clock, say)
        self._base = {**registry(), **self._folder.presets()}
        self._stamp, self._known = self._stamps(), dict(self._base)
        if policy.workloads is not None:
            self._known.update(offered(Path(policy.workloads), policy.interpreter, self._base))

    def __getitem__(self, name: str) -> Preset:
        """Return a preset.

        Raises:
            KeyError: there is none.
        """
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._now())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._now())

    def _now(self) -> Mapping[str, Preset]:
        with self._lock:
            base, stamp = {**registry(), **self._folder.presets()}, self._stamps()
            if (base, stamp) != (self._base, self._stamp):
                self._base, self._stamp = base, stamp
                self._known = self._read()
            return self._known

    def _read(self) -> dict[str, Preset]:
        found = dict(self._base)
        for folder in self._folders():
            try:
                found.update(checked(folder, self._policy.interpreter, found).presets)
            except (KakeyaError, OSError, ValueError):
                continue
        return found

    def _folders(self) -> tuple[Path, ...]:
        try:
            return () if self._policy.workloads is None else allowed(Path(self._policy.workloads))
        except (KakeyaError, OSError):
            return ()

    def _stamps(self) -> tuple[object, ...]:
        """Return what changes with the list of folders, and with any file in one."""
        found: list[object] = []
        for folder in self._folders():
            found.append(str(folder))
            try:
                for path in files_of(folder):
                    facts = os.stat(path)  # noqa: PTH116 - once a file and poll
                    found.append((str(path), facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_mode))
            except OSError:
                found.append("unreadable")
        return tuple(found)
