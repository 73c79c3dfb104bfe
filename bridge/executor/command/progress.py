"""How far a run is: which of its commands, and how many of that command's samples or launches are over.

For people only; nothing that is judged rests on it. The workload's own lines are bounded and checked elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from bridge.records.claim import RunProgress
from bridge.records.jobspec import Command
from bridge.records.run import SampleMark


class ProgressMeter:
    """Counts what the commands of a run went through.

    Args:
        commands: all of them, in order.
        elapsed_s: seconds since the run's start.
        tell: takes each new progress.
    """

    def __init__(
        self, commands: Sequence[Command], elapsed_s: Callable[[], float], tell: Callable[[RunProgress], None]
    ) -> None:
        self._commands, self._elapsed_s, self._tell = commands, elapsed_s, tell
        self._number = 0
        self._unit: Literal["sample", "launch"] | None = None
        self._done = 0
        self._most: int | None = None
        self._since_s = 0.0

    def begin(self, command: Command) -> None:
        """Say that a command begins."""
        self._number = self._commands.index(command) + 1
        self._unit, self._done, self._most, self._since_s = None, 0, None, self._elapsed_s()
        self._say()

    def plan(self, samples: int) -> None:
        """Take the number of samples that the command's program says it will go through."""
        if self._unit != "launch":
            self._since_s = self._elapsed_s()
            self._count("sample", 0, samples)

    def mark(self, mark: SampleMark) -> None:
        """Count a sample that has ended."""
        if mark.event == "end" and self._unit != "launch":
            self._count("sample", self._done + 1, self._most)

    def launched(self, done: int, most: int) -> None:
        """Count the launches of a series; the first one calibrates and is not counted."""
        self._count("launch", max(0, done - 1), most)

    def _count(self, unit: Literal["sample", "launch"], done: int, most: int | None) -> None:
        self._unit, self._done = unit, done
        self._most = None if most is not None and done > most else most
        self._say()

    def _say(self) -> None:
        if self._number == 0:  # nothing runs yet
            return
        command = self._commands[self._number - 1]
        self._tell(
            RunProgress(
                step=command.name,
                number=self._number,
                steps=len(self._commands),
                unit=self._unit,
                done=self._done,
                most=self._most,
                left_s=self._left_s(),
            )
        )

    def _left_s(self) -> float | None:
        """Return how long what is left takes at the pace so far, None where there is no pace to go by."""
        now_s = self._elapsed_s()
        if self._done and self._most is not None:
            pace_s = (now_s - self._since_s) / self._done
            return round(min(pace_s * (self._most - self._done), self._allowed_s(now_s) + pace_s), 1)
        ended = self._number - 1
        if self._unit is None and ended and all(command.seed is not None for command in self._commands):
            return round(self._since_s / ended * (len(self._commands) - ended), 1)  # repeats of one program
        return None

    def _allowed_s(self, now_s: float) -> float:
        """Return for how long a launch of the command may still begin."""
        series = self._commands[self._number - 1].launches
        allowed_s = None if series is None else series.rule.allowed_s
        return math.inf if allowed_s is None else max(0.0, allowed_s - (now_s - self._since_s))
