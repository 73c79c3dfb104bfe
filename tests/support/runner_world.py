"""A runner over a bus in memory with an executor whose programs are functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.bus.views import RequestRef, Tree
from bridge.executor.interface import RunDirectory
from bridge.presets import Preset, registry
from bridge.records import Claim, JobSpec, Request, RunRecord, Verdict
from bridge.runner.connection.link import link_to
from bridge.runner.host import Host, StateFolder
from bridge.runner.machine.identity import CodeFacts
from bridge.runner.policy.file import Policy, read_policy
from bridge.runner.service.loop import Runner
from bridge.runner.state.attempts import Attempts
from bridge.runner.state.attestations import Attesting
from bridge.runner.state.journal import Journal
from bridge.system.clock import SystemClock
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request, push
from tests.fakes.fake_executor import FakeExecutor, Program
from tests.fakes.memory_bus import Faults, MemoryBus, MemoryRemote, bus_record

POLICY = 'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 0\n'


class FixedCode:
    """Code facts that need no process."""

    def now(self) -> CodeFacts:
        return CodeFacts("a" * 40, False, "/usr/bin/python3", "3.11.2", {"kakeya": "0"}, None)


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


@dataclass
class World:
    """One remote, one runner on it, and a requester's view of both."""

    state: Path
    remote: MemoryRemote
    clock: Any
    program: Program = probe
    said: list[str] = field(default_factory=list)
    policy_text: str = POLICY
    embedded: bool = False
    faults: Faults = field(default_factory=Faults)
    presets: dict[str, Preset] = field(default_factory=lambda: dict(registry()))

    def __post_init__(self) -> None:
        self.requester = MemoryBus(self.remote, clock=self.clock)
        self.executor = FakeExecutor(self.clock, lambda *run: self.program(*run))  # noqa: PLW0108 (a test may change it)
        self.host = self.new_host()

    @property
    def policy(self) -> Policy:
        return read_policy(self.policy_text.encode())

    def new_host(self, name: str = "one") -> Host:
        """Return a host as a fresh process would find it."""
        state = StateFolder(self.state / name)
        state.create()
        return Host(
            policy=self.policy,
            embedded=self.embedded,
            facts=self.policy.facts(embedded=self.embedded),
            presets=self.presets,
            executor=self.executor,
            clock=self.clock,
            state=state,
            journal=Journal(state.journal, self.clock),
            attempts=Attempts(state.attempts),
            attesting=Attesting(state.root, name),
            code_watch=FixedCode(),
            version="0",
            say=self.said.append,
        )

    def runner(self, host: Host | None = None) -> Runner:
        host = host or self.host
        return Runner(host, link_to(MemoryBus(self.remote, clock=self.clock, faults=self.faults), self.clock))

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
    def make(**changes: Any) -> World:
        remote = MemoryRemote()
        MemoryBus(remote, clock=clock).create(bus_record(clock))
        return World(state=tmp_path / "state", remote=remote, clock=clock, **changes)

    return make
