"""The preset files of a host's folder while its runner serves: each is read anew once it changed and was left alone.

A file that is gone, or is not its owner's alone, offers nothing from then on. One that is being written offers what it
did before: its first piece may allow more than the whole. Knows nothing about workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import UsageError, of_system
from bridge.presets.model import Preset
from bridge.runner.policy.file import preset_in
from bridge.runner.policy.policy_file import REST_S
from bridge.system.clock import Clock

_Stamp = tuple[int, ...]


@dataclass
class _ReadFile:
    """What a preset file came to: its stamp then, its preset or None, and since when it has looked otherwise."""

    stamp: _Stamp
    preset: Preset | None
    changing: tuple[_Stamp, float] | None = None


class PresetFolder:
    """A folder of preset files.

    Args:
        folder: the folder, None for none.
        taken: names that its files may not have.
        clock: says how long a file was left alone.
        say: takes a line for the owner about a file that changed.

    Raises:
        UsageError: a file has a mistake.
    """

    def __init__(
        self, folder: str | None, taken: Container[str], clock: Clock, say: Callable[[str], None] = lambda _line: None
    ) -> None:
        self._folder = None if folder is None else Path(folder)
        self._taken, self._clock, self._say = taken, clock, say
        self._files = {path: _ReadFile(_stamp(path), preset_in(path, taken)) for path in self._paths()}

    def presets(self) -> dict[str, Preset]:
        """Return what its files offer now, by name."""
        there = self._paths()
        for path in self._files.keys() - set(there):
            del self._files[path]
            self._say(f"preset {path.stem} is offered no more: {path} is gone")
        for path in there:
            self._look(path)
        return {path.stem: file.preset for path, file in sorted(self._files.items()) if file.preset is not None}

    def _paths(self) -> list[Path]:
        return [] if self._folder is None else sorted(self._folder.glob("*.toml"))

    def _look(self, path: Path) -> None:
        """Read a file anew where it changed and was left alone."""
        file = self._files.setdefault(path, _ReadFile((), None))
        try:
            stamp = _stamp(path)
        except OSError as error:
            self._note(path, _ReadFile((), None), of_system(error).message)
            return
        if stamp == file.stamp:
            file.changing = None
            return
        now_s = self._clock.steady_s()
        if file.changing is None or file.changing[0] != stamp:
            file.changing = (stamp, now_s)
        if now_s - file.changing[1] < REST_S:
            return
        try:
            self._note(path, _ReadFile(stamp, preset_in(path, self._taken)))
        except UsageError as error:
            self._note(path, _ReadFile(stamp, None), error.message)
        except OSError as error:
            self._note(path, _ReadFile((), None), of_system(error).message)

    def _note(self, path: Path, file: _ReadFile, why: str = "") -> None:
        before = self._files.get(path)
        self._files[path] = file
        if file.preset is None and (before is None or before.preset is not None or before.stamp != file.stamp):
            self._say(f"preset {path.stem} is not offered: {why}")
        elif file.preset is not None:
            self._say(f"preset {path.stem} was read anew: it counts from now on")


def _stamp(path: Path) -> _Stamp:
    """Return what changes with a file, and with who may write it."""
    facts = path.lstat()
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_mode, facts.st_uid
