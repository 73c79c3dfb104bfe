"""A runner over a bus in memory with an executor whose programs are functions."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bridge.bus.tree import Tree
from bridge.bus.views import RequestRef
from bridge.executor.interface import RunDirectory
from bridge.executor.observe.accelerators.cards import Card
from bridge.presets.installed import registry
from bridge.presets.model import Preset
from bridge.records.claim import Claim
from bridge.records.jobspec import JobSpec
from bridge.records.request import Request
from bridge.records.run import RunRecord
from bridge.records.verdict import Verdict
from bridge.runner.actions.announce import RunAnnouncement, announce_nothing
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import BusLink, link_to
from bridge.runner.machine.identity import CodeFacts
from bridge.runner.machine.machine import Machine
from bridge.runner.policy.file import read_policy
from bridge.runner.policy.model import Policy
from bridge.runner.policy.policy_file import PolicyFile
from bridge.runner.service.loop import Runner
from bridge.runner.state.folder import OpenState, StateFolder
from bridge.runner.state.journal import Journal
from bridge.runner.state.log import new_log
from bridge.system.clock import Clock, SystemClock
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request, push
from tests.fakes.fake_executor import FakeExecutor, Program
from tests.fakes.memory_bus import LEASE_S, Faults, MemoryBus, MemoryRemote, bus_record

POLICY = 'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 0\n'


@dataclass
class FixedCode:
    """Code facts that need no process."""

    site: Path | None = None

    def look(self) -> None:
        """There is nothing to look at."""

    def now(self, _max_age_s: float = 0.0) -> CodeFacts:
        sites = () if self.site is None else (self.site,)
        return CodeFacts("a" * 40, False, "/usr/bin/python3", "3.11.2", {"kakeya": "0"}, None, sites)


def probe(spec: JobSpec, directory: RunDirectory) -> Iterator[bytes]:
    """Write a well-formed probe report."""
    yield b"probing\n"
    report = {
        "kind": "environment_probe",
        "schema_version": 3,
        "run": {
            "id": spec.id,
            "request_digest": spec.request_digest,
            "preset": spec.preset,
            "params": dict(spec.params),
            "profile": spec.profile,
        },
        "config": {},
        "environment": {},
        "arms": [],
        "claims": [],
        "fallbacks": [],
    }
    (directory.out / "probe.json").write_text(json.dumps(report))
    return 0


class Lines(io.TextIOBase):
    """A stream that keeps what people would read, line by line."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def write(self, text: str) -> int:
        self._lines += text.splitlines()
        return len(text)


@dataclass(frozen=True)
class RunnerProcess:
    """One process of a runner: what `runner_on` puts together, with a scripted executor."""

    rules: OwnerRules
    machine: Machine
    state: OpenState
    clock: Clock
    log: logging.Logger
    stopping: threading.Event = field(default_factory=threading.Event)
    announce: Callable[[RunAnnouncement], None] = announce_nothing
    policy_file: PolicyFile | None = None

    @property
    def journal(self) -> Journal:
        return self.state.journal

    @property
    def folder(self) -> StateFolder:
        return self.state.folder

    def with_journal(self, journal: type[Journal]) -> RunnerProcess:
        """Return this process with a journal of another class."""
        return replace(self, state=replace(self.state, journal=journal(self.state.database, self.clock)))

    def on(self, link: BusLink) -> Runner:
        """Return the runner of this process on a bus."""
        return Runner(
            self.rules, self.machine, self.state, link,
            clock=self.clock, stopping=self.stopping, log=self.log, announce=self.announce,
            policy_file=self.policy_file,
        )  # fmt: skip


@dataclass
class World:
    """One remote, one runner on it, and a requester's view of both."""

    state: Path
    remote: MemoryRemote
    clock: Any
    program: Program = probe
    log_lines: list[str] = field(default_factory=list)
    policy_text: str = POLICY
    embedded: bool = False
    cards: tuple[Card, ...] = ()
    faults: Faults = field(default_factory=Faults)
    presets: dict[str, Preset] = field(default_factory=lambda: dict(registry()))
    site: Path | None = None

    def __post_init__(self) -> None:
        self.requester = MemoryBus(self.remote, clock=self.clock)
        self.executor = FakeExecutor(self.clock, lambda *run: self.program(*run))  # noqa: PLW0108 (a test may change it)
        self.process = self.new_process()

    @property
    def policy(self) -> Policy:
        return read_policy(self.policy_text.encode())

    def new_process(self, name: str = "one", identity: Path | None = None) -> RunnerProcess:
        """Return a runner as a fresh process would find it."""
        folder = StateFolder(self.state / name, identity_at=identity)
        folder.create()
        rules = OwnerRules(self.policy, self.presets, embedded=self.embedded)
        machine = Machine(self.executor, FixedCode(self.site), "0", self.cards)
        return RunnerProcess(
            rules, machine, OpenState.open(folder, rules.name, self.clock), self.clock, new_log(Lines(self.log_lines))
        )

    def runner(self, process: RunnerProcess | None = None) -> Runner:
        process = process or self.process
        return process.on(link_to(MemoryBus(self.remote, clock=self.clock, faults=self.faults), self.clock))

    def ask(self, preset: str = "mlx-env-probe", data: bytes | None = None, **changes: Any) -> RequestRef:
        request = make_request(self.requester.identity().bus_id, preset, now=self.clock.now(), **changes)
        return push(self.requester, request, data)

    def request_of(self, ref: RequestRef) -> Request:
        """Return the request that was pushed."""
        return Request.parse(self.requester.read_request(ref).data)

    def request(self, preset: str = "mlx-env-probe", **changes: Any) -> Request:
        return make_request(self.requester.identity().bus_id, preset, now=self.clock.now(), **changes)

    def serve_once(self, runner: Runner | None = None) -> Runner:
        """List, act, wait for what was started."""
        runner = runner or self.runner()
        runner.step()
        runner.join()
        return runner

    def claim(self, run_id: str) -> Claim:
        view = self.requester.read_claim(run_id)
        assert view is not None, "never claimed"
        return view.claim

    def result(self, run_id: str) -> Tree:
        """Return the result tree, checked."""
        claim = self.claim(run_id)
        assert claim.state == "terminal", claim
        assert claim.result_oid is not None
        tree = self.requester.read_result(claim.result_oid)
        problems = verify_tree(tree.files, run_id=run_id)
        assert problems == []
        return tree

    def record(self, run_id: str) -> RunRecord:
        return RunRecord.parse(self.result(run_id).files["run.json"], max_bytes=1 << 25, max_depth=32)

    def verdict(self, run_id: str) -> Verdict:
        return Verdict.parse(self.result(run_id).files["verdict.json"], max_bytes=1 << 25, max_depth=32)


@pytest.fixture
def clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
def world(tmp_path: Path, clock: SystemClock) -> Callable[..., World]:
    def make(*, lease_s: float = LEASE_S, **changes: Any) -> World:
        remote = MemoryRemote()
        MemoryBus(remote, clock=clock).create(bus_record(clock, lease_s=lease_s))
        return World(state=tmp_path / "state", remote=remote, clock=clock, **changes)

    return make
