"""The presets of a host while its runner serves: a workload that its owner edits, allows or removes is read anew.

What is wrong when the runner starts stops it; what becomes wrong later is not offered until it is right again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from bridge.errors import KakeyaError
from bridge.presets.model import Preset
from bridge.presets.workloads.digests import files_of
from bridge.runner.policy.file import installed_presets, own_presets
from bridge.runner.policy.model import Policy
from bridge.runner.policy.workloads import allowed, checked


class LivePresets(Mapping[str, Preset]):
    """Installed presets and the owner's own by name, as they are now.

    Raises:
        UsageError: at the start, a preset file or a workload has a mistake.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy, self._lock = policy, threading.Lock()
        self._base = installed_presets(policy)
        self._stamp, self._known = self._stamps(), own_presets(policy)

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
            stamp = self._stamps()
            if stamp != self._stamp:
                self._stamp, self._known = stamp, self._read()
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
