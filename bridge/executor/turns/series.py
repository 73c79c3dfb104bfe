"""Launch a command again and again until the stop rule ends that, each launch followed by its reference.

Knows how long it took and what the stamps say; how a process is run and confined is its caller's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from bridge.executor.observe.accelerators.interface import GpuMeter
from bridge.executor.turns.burner import Burner, half_the_processors
from bridge.executor.turns.launch import Calibration, LaunchTurns
from bridge.launches.loads import draw_loads
from bridge.records.jobspec import Command
from bridge.records.run import CommandResult
from bridge.records.turns import LaunchRecord, LaunchSeries
from bridge.run.stop_rule import SeriesDecision, decide


@dataclass
class SeriesOfLaunches:
    """The launches of one command.

    Attributes:
        run: runs a command with its turns handed out; returns whether the next may run.
        note: puts a line into the log.
        elapsed_s: seconds on a clock of the run's.
        gpu: reads the accelerator's load, or says why nothing does.
        launched: gets how many launches are over, and how many there are at most.
        turns: makes what hands out the turns of a launch.
        full: says why no further launch may begin, nothing while one may.
        records: the launches so far, each with its reference.
        draw: draws which launches run under load; the system's own generator, unless a test knows better.
    """

    command: Command
    plan: LaunchSeries
    run: Callable[[Command, LaunchTurns], bool]
    note: Callable[[str], None]
    elapsed_s: Callable[[], float]
    gpu: GpuMeter | str
    launched: Callable[[int, int], None] = lambda _done, _most: None
    turns: Callable[..., LaunchTurns] = LaunchTurns
    full: Callable[[], str] = lambda: ""
    records: list[LaunchRecord] = field(default_factory=list)
    calibration: Calibration = field(default_factory=Calibration)
    draw: random.Random = field(default_factory=random.SystemRandom)
    _under_load: frozenset[int] = field(default=frozenset(), init=False)

    def until_decided(self) -> bool:
        """Launch until the rule ends it; return whether the next command may run."""
        name, decision, went_on, began_s = self.command.name, SeriesDecision(stop=False, why=""), True, self.elapsed_s()
        while went_on and not decision.stop:
            went_on = self._launch()
            self.launched(len(self.records), self.plan.rule.most)
            decision = decide(self.plan, self.records, self.elapsed_s() - began_s)
            if not decision.stop and (why := self.full()):
                decision = SeriesDecision(stop=True, why=why)
        self.note(f"{len(self.records)} launches of {name}: {decision.why if went_on else 'the run ended'}")
        return went_on

    def _launch(self) -> bool:
        """Launch once, under the runner's own load where that was drawn; return whether to go on."""
        if self.plan.load is None:
            return self._measure(None)
        count = half_the_processors() if self._is_loaded(len(self.records)) else 0
        with Burner(count):
            return self._measure(count)

    def _is_loaded(self, number: int) -> bool:
        """Return whether a launch runs under load: half of a rotation does, drawn, and of the next one the others."""
        if number == 0:
            return False
        blocks = self.plan.rule.blocks
        rotation, block = divmod(number - 1, blocks)
        if rotation % 2:
            return not self.records[number - blocks].loaded
        if block == 0:
            self._under_load = draw_loads(blocks, self.draw)
        return block in self._under_load

    def _measure(self, loaded: int | None) -> bool:
        went_on, record = self._turns(self.command, None)
        record = None if record is None else record.evolve(loaded=loaded)
        if record is not None and record.cut is not None:
            self.note(f"launch {record.number} of {self.command.name} was cut: {record.cut}")
        elif record is not None and record.number > 0 and went_on and self.command.reference and self.plan.solo_s > 0:
            went_on, record = self._reference(record)
        self.records += [] if record is None else [record]
        return went_on

    def _reference(self, launch: LaunchRecord) -> tuple[bool, LaunchRecord]:
        """Let the host's own loop decode a launch's samples alone; return whether to go on, and the launch with it."""
        own = self.command.evolve(argv=self.command.reference, launches=None, reference=None)
        went_on, reference = self._turns(own, launch)
        if reference is None or reference.cut is not None:
            why = "it did not start" if reference is None else reference.cut
            self.note(f"launch {launch.number} of {self.command.name} has no reference: {why}")
            return went_on, launch
        return went_on, launch.evolve(reference=reference.solos[0])

    def _turns(self, command: Command, after: LaunchRecord | None) -> tuple[bool, LaunchRecord | None]:
        number = len(self.records)
        with self.turns(self.plan, command.name, number, self.calibration, gpu=self.gpu, after=after) as turns:
            went_on = self.run(command, turns)
        return went_on, turns.record


def joined(results: list[CommandResult]) -> CommandResult:
    """Return the results of a series, references included, as the one of its command."""
    return results[-1].evolve(
        argv=results[0].argv,
        started_s=results[0].started_s,
        peak_rss_bytes=max(result.peak_rss_bytes for result in results),
        cpu_s=sum(result.cpu_s for result in results),
        survivors=sum(result.survivors for result in results),
    )
