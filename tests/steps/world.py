"""Runners and clients of the product on one stepped bus; programs are functions, runs take virtual time."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bridge.bus.refbus import RefBus
from bridge.bus.store.push_budget import Pacer
from bridge.bus.views import RequestRef, RunView
from bridge.executor.interface import RunDirectory
from bridge.limits import PUSHES_PER_MINUTE_HOSTED
from bridge.presets.installed import registry
from bridge.records.jobspec import JobSpec
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import link_to
from bridge.runner.machine.machine import Machine
from bridge.runner.policy.file import read_policy
from bridge.runner.service.loop import Runner
from bridge.runner.service.serve import serve
from bridge.runner.state.folder import OpenState, StateFolder
from bridge.runner.state.log import new_log
from tests.fakes.asking import make_request, push
from tests.fakes.fake_executor import FakeExecutor
from tests.fakes.memory_bus import BUS_ID, MemoryBus, MemoryRemote, MemoryStore
from tests.steps.bus import CallMeter, new_remote
from tests.steps.stepping import SteppedProcess, SteppedTask, Stepping
from tests.support.runner_world import FixedCode, Lines, probe


@dataclass
class SteppedRunner:
    """One process of a runner, what it cost, and what outlives it: its folder, its runs, its copy of the bus."""

    runner: Runner
    meter: CallMeter
    log_lines: list[str]
    executor: FakeExecutor
    stopping: threading.Event
    process: SteppedProcess
    store: MemoryStore
    name: str
    policy: str
    task: SteppedTask | None = None


@dataclass
class SteppedWorld:
    """One remote, its runners and its clients.

    Attributes:
        folder: for the runners' states.
        seed: decides the order of what is due at the same moment.
        run_s: how long a run takes.
        slow: whether each call takes up to four seconds and one in a hundred is lost.
        leaves: what a run leaves behind beside its report, by name.
        hosted: whether the remote is somebody else's, where runners poll and push less often.
    """

    folder: Path
    seed: int = 0
    run_s: float = 1.0
    slow: bool = False
    hosted: bool = False
    record: dict[str, object] = field(default_factory=dict)
    runners: list[SteppedRunner] = field(default_factory=list)
    leaves: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = Stepping(self.seed)
        self.remote: MemoryRemote = new_remote(self.clock, **self.record)
        self.client = MemoryBus(self.remote, clock=self.clock)

    def runner(self, name: str = "mini", policy: str = "rate_per_hour = 0\n") -> SteppedRunner:
        """Add a runner; `serve` lets it poll."""
        return self._begun(name, policy, FakeExecutor(self.clock, self._program))

    def again(self, before: SteppedRunner) -> SteppedRunner:
        """Add the next process of a runner that was killed."""
        before.runner.state.close()
        self.runners.remove(before)
        made = self._begun(before.name, before.policy, before.executor)
        made.store.objects.update(before.store.objects)
        made.store.pins.update(before.store.pins)
        made.meter.counts.update(before.meter.counts)
        made.log_lines[:0] = before.log_lines
        return made

    def _begun(self, name: str, policy: str, executor: FakeExecutor) -> SteppedRunner:
        text = f'schema = 1\nname = "{name}"\ninterpreter = "/usr/bin/python3"\n{policy}'
        folder = StateFolder(self.folder / name)
        folder.create()
        log_lines: list[str] = []
        chance = random.Random(f"{self.seed} {name}") if self.slow else None
        meter, stopping = CallMeter(self.clock, bad_network=chance), threading.Event()
        log = new_log(Lines(log_lines))
        log.setLevel(logging.DEBUG)
        rules = OwnerRules(read_policy(text.encode()), dict(registry()))
        state = OpenState.open(folder, name, self.clock)
        pacer = Pacer(self.folder / f"{name}.pushes" if self.hosted else None, PUSHES_PER_MINUTE_HOSTED, self.clock)
        store = MemoryStore(self.remote, meter.faults())
        link = link_to(RefBus(store, clock=self.clock, pacer=pacer), self.clock)
        process = SteppedProcess(self.clock)
        runner = Runner(
            rules, Machine(executor, FixedCode(), "0"), state, link,
            clock=self.clock, stopping=stopping, log=log, tasks=process,
        )  # fmt: skip
        made = SteppedRunner(runner, meter, log_lines, executor, stopping, process, store, name, policy)
        self.runners.append(made)
        return made

    def serve(self, runner: SteppedRunner) -> SteppedRunner:
        """Let a runner take requests until it is stopped."""
        runner.task = runner.process.start(lambda: serve(runner.runner), f"serve-{len(self.runners)}")
        return runner

    def ask(self, preset: str = "mlx-env-probe") -> RequestRef:
        """Send a request."""
        return push(self.client, make_request(BUS_ID, preset, now=self.clock.now()))

    def view(self, run_id: str) -> RunView:
        """Return what a client knows of a run."""
        return self.client.view(run_id)

    def ended(self, run_id: str) -> bool:
        """Return whether a run has its end."""
        claim = self.view(run_id).claim
        return claim is not None and claim.claim.state == "terminal"

    def times_executed(self) -> Counter[str]:
        """Return how often each run was executed, over all runners."""
        return Counter(spec.id for runner in self.runners for spec in runner.executor.executed)

    def close(self) -> None:
        """End all runners."""
        self.clock.close()
        for runner in self.runners:
            runner.runner.state.close()

    def _program(self, spec: JobSpec, directory: RunDirectory) -> Iterator[bytes]:
        self.clock.sleep(self.run_s)
        for name, data in self.leaves.items():
            (directory.out / name).write_bytes(data)
        return (yield from probe(spec, directory))
