"""Whole runners over smart HTTP: who takes what over, and who may publish when a push is slow or a branch moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.bus.sides.runner import RunnerBus
from bridge.bus.views import HeldClaim, LogChunk, RequestRef
from bridge.executor.interface import RunDirectory
from bridge.limits import LEASE_LISTINGS_COUNT
from bridge.records.claim import Claim
from bridge.records.jobspec import JobSpec
from bridge.runner.connection.link import link_to
from bridge.runner.service.loop import Runner
from tests.fakes.git_servers import Proxy, git
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record
from tests.integration.bus.conftest import Line
from tests.support.runner_world import POLICY, World, probe

pytestmark = pytest.mark.servers
LEASE_S = 15.0


class SlowPublisher:
    """A bus whose upload of a result is held up on the way."""

    def __init__(self, bus: RunnerBus, proxy: Proxy) -> None:
        self._bus, self._proxy = bus, proxy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    def beside(self) -> SlowPublisher:
        return SlowPublisher(self._bus.beside(), self._proxy)

    def publish(self, held_claim: HeldClaim, claim: Claim, *, log: LogChunk | None = None) -> HeldClaim:
        self._proxy.hold = True
        return self._bus.publish(held_claim, claim, log=log)


def make(
    line: Line, name: str, bus: RunnerBus, program: Callable[..., Iterator[bytes]] = probe
) -> tuple[World, Runner]:
    """Return a host of this name with a program of its own, and its runner on the bus."""
    unused = MemoryRemote()
    MemoryBus(unused, clock=line.clock).create(bus_record(line.clock))
    policy = POLICY.replace('"mini"', f'"{name}"')
    world = World(
        state=line.tmp_path / f"runner-{name}", remote=unused, clock=line.clock, program=program, policy_text=policy
    )
    return world, world.process.on(link_to(bus, line.clock))


def pass_lease(line: Line, runner: Runner) -> None:
    """Let a runner look on while a whole lease passes in which a claim does not move on."""
    for _ in range(LEASE_LISTINGS_COUNT):
        line.clock.advance((LEASE_S + 1) / LEASE_LISTINGS_COUNT)
        runner.step()
    runner.join()


def end_of(line: Line, run_id: str) -> Claim:
    view = line.direct("reader").bus.read_claim(run_id)
    assert view is not None
    return view.claim


def test_an_expired_claim_is_taken_over_and_runs_once(line: Line) -> None:
    sent = line.direct("client").submit()
    line.through("gone").claim(sent.ref)
    world, runner = make(line, "heir", line.through("heir").bus)
    runner.step()
    runner.join()
    assert world.executor.executed == []  # the lease has not passed on our own clock yet
    pass_lease(line, runner)
    end = end_of(line, sent.ref.id)
    assert (end.state, end.runner, len(world.executor.executed)) == ("terminal", "heir", 1)


@pytest.mark.ci
def test_an_expired_start_is_only_finalised(line: Line) -> None:
    sent = line.direct("client").submit()
    gone = line.through("gone")
    gone.start(sent.ref, gone.claim(sent.ref))
    world, runner = make(line, "heir", line.through("heir").bus)
    runner.step()
    pass_lease(line, runner)
    end = end_of(line, sent.ref.id)
    assert (end.state, end.reason, end.runner) == ("terminal", "runner_lost", "heir")
    assert world.executor.executed == []


@pytest.mark.ci
def test_a_runner_whose_publishing_push_is_slow_is_fenced_by_who_finalised_its_run(line: Line) -> None:
    sent = line.direct("client").submit()
    slow, runner = make(line, "slow", SlowPublisher(line.through("slow").bus, line.proxy))  # type: ignore[arg-type]
    _, heir = make(line, "heir", line.direct("heir").bus)
    runner.step()
    assert line.proxy.holding.wait(240)
    heir.step()
    pass_lease(line, heir)
    line.proxy.release.set()
    runner.join()
    end = end_of(line, sent.ref.id)
    assert (end.reason, end.runner) == ("runner_lost", "heir")
    assert any("new owner" in message for message in slow.log_lines)
    assert runner.outcomes == ()
    assert len(slow.executor.executed) == 1


@pytest.mark.ci
@pytest.mark.parametrize("fate", ["deleted", "moved on", "pushed over"])
def test_a_branch_that_goes_elsewhere_while_the_program_runs_is_left_there(line: Line, fate: str) -> None:
    sent = line.direct("client").submit()
    other = line.direct("client").submit()
    program = _interfering(line.path, sent.ref, other.ref, fate)
    world, runner = make(line, "host", line.through("host").bus, program)
    heads = git("for-each-ref", "--format=%(refname)", "refs/heads", cwd=line.path).splitlines()
    runner.step(only=sent.ref.ref)
    runner.join()
    assert len(world.executor.executed) == 1
    view = line.direct("reader").bus.view(sent.ref.id)
    assert view.delivery == ("branch_deleted" if fate == "deleted" else "branch_moved")
    assert view.claim is not None
    assert "run.json" in line.direct("reader").bus.read_result(view.claim.claim.result_oid or "").files
    left = git("for-each-ref", "--format=%(refname)", "refs/heads", cwd=line.path).splitlines()
    assert (set(heads) - set(left) == {sent.ref.ref}) == (fate == "deleted")
    assert ".mac-bridge/result" not in git("ls-tree", "-r", "--name-only", other.ref.oid, cwd=line.path)


def _interfering(path: Path, ref: RequestRef, other: RequestRef, fate: str) -> Callable[..., Iterator[bytes]]:
    def program(spec: JobSpec, directory: RunDirectory) -> Iterator[bytes]:
        if fate == "deleted":
            git("update-ref", "-d", ref.ref, cwd=path)
        elif fate == "pushed over":
            git("update-ref", ref.ref, other.oid, cwd=path)
        else:
            tree = git("rev-parse", f"{ref.oid}^{{tree}}", cwd=path)
            who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
            moved = git(*who, "commit-tree", "-p", ref.oid, "-m", "on", tree, cwd=path)
            git("update-ref", ref.ref, moved, cwd=path)
        return (yield from probe(spec, directory))

    return program
