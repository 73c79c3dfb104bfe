"""A runner that is killed, or whose bus is away, at any of its pushes: its run has one end, which is what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from bridge.limits import MIB
from bridge.runner.run import session
from bridge.runner.state.history import JournalStage
from bridge.system.process import Completed
from bridge.trust.verifier import verify_tree
from tests.steps.world import SteppedRunner, SteppedWorld

RUN_S = 60.0  # long enough that the claim is renewed meanwhile
PUSHES = 8  # beacon, claim, start, renewals, judging, end, copy, and one more
PATIENCE_S = 3600.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SteppedWorld]:
    made = SteppedWorld(tmp_path, run_s=RUN_S, record={"lease_s": 60.0})
    yield made
    made.close()


def at_push(runner: SteppedRunner, then: Callable[[int], str | None]) -> None:
    """Let something happen at a runner's pushes, which are counted; what it returns is the fate of the push."""
    pushes, usual = count(), runner.store.faults.decide

    def decide(operation: str) -> str | None:
        fate = usual(operation)
        return then(next(pushes)) if operation == "push" else fate

    runner.store.faults.decide = decide


def has_one_end(world: SteppedWorld, run_id: str, *, reason: str = "gate_rejected") -> None:
    """Step until a run has ended; the scripted report is no whole one, so a run that was judged is rejected."""
    assert world.clock.run_until(lambda: world.ended(run_id), world.clock.steady_s() + PATIENCE_S)
    claim = world.view(run_id).claim.claim
    assert (claim.reason, claim.message if reason != claim.reason else "") == (reason, "")
    assert world.times_executed() == {run_id: 1}
    assert verify_tree(world.client.read_result(claim.result_oid).files, run_id=run_id) == []
    for stepped in world.runners:
        settled = world.clock.run_until(
            lambda stepped=stepped: stepped.runner.unended == (), world.clock.steady_s() + PATIENCE_S
        )
        assert settled, stepped.log_lines


@pytest.mark.parametrize("number", range(PUSHES))
@pytest.mark.parametrize("arrives", ["never", "at once", "late"])
def test_a_runner_killed_at_a_push_ends_its_run_once_it_is_back(world: SteppedWorld, number: int, arrives: str) -> None:
    mini = world.runner()
    faults, usual, pushes = mini.store.faults, mini.store.faults.decide, count()

    def decide(operation: str) -> str | None:
        if faults.delayed:  # the push goes on in a process of its own, whose runner has died meanwhile
            mini.process.kill()
        fate = usual(operation)
        if operation != "push" or next(pushes) != number:
            return fate
        if arrives == "never":
            mini.process.kill()
        return "delayed"

    faults.decide = decide
    world.serve(mini)
    ref = world.ask()
    assert world.clock.run_until(lambda: mini.task is not None and mini.task.ended, world.clock.steady_s() + PATIENCE_S)
    if arrives == "at once":
        faults.flush()
    again = world.again(mini)
    at_push(again, lambda nth: faults.flush() if nth == 0 else None)
    world.serve(again)
    has_one_end(world, ref.id)


@pytest.mark.parametrize("number", range(PUSHES))
def test_a_push_that_arrives_without_an_answer_before_the_bus_is_gone_for_a_while_costs_no_result(
    world: SteppedWorld, number: int
) -> None:
    mini = world.runner()
    usual, pushes, gone_s = mini.store.faults.decide, count(), [float("inf")]

    def decide(operation: str) -> str | None:
        fate = usual(operation)
        now_s = world.clock.steady_s()
        if gone_s[0] <= now_s < gone_s[0] + 15.0:
            return "lost"
        if operation != "push" or next(pushes) != number:
            return fate
        gone_s[0] = now_s
        return "unanswered"

    mini.store.faults.decide = decide
    world.serve(mini)
    has_one_end(world, world.ask().id)


def test_a_run_that_goes_on_is_not_ended_because_the_bus_does_not_answer_its_next_runner(world: SteppedWorld) -> None:
    mini = world.serve(world.runner())
    ref = world.ask()
    assert world.clock.run_until(lambda: len(mini.executor.executed) == 1, world.clock.steady_s() + RUN_S)
    mini.process.kill()
    again = world.again(mini)
    usual, gone_s = again.store.faults.decide, []

    def decide(operation: str) -> str | None:
        fate = usual(operation)
        if again.runner.busy and not gone_s:
            gone_s.append(world.clock.steady_s())
        return "lost" if gone_s and world.clock.steady_s() < gone_s[0] + 30.0 else fate

    again.store.faults.decide = decide
    world.serve(again)
    has_one_end(world, ref.id)
    assert gone_s


def test_a_run_is_not_taken_for_lost_while_its_next_runner_is_only_late(world: SteppedWorld) -> None:
    mini, other = world.serve(world.runner()), world.serve(world.runner("other"))
    ref = world.ask()
    assert world.clock.run_until(lambda: len(world.times_executed()) == 1, world.clock.steady_s() + RUN_S)
    mini, other = (mini, other) if mini.executor.executed else (other, mini)
    world.clock.run_for(5.0)  # its claim is not renewed yet
    mini.process.kill()
    world.clock.run_for(50.0)  # almost its lease
    world.serve(world.again(mini))
    has_one_end(world, ref.id)


def test_a_large_result_on_its_way_over_a_slow_line_keeps_claim_and_sign_of_life(tmp_path: Path) -> None:
    world = SteppedWorld(tmp_path, run_s=1.0, record={"lease_s": 600.0})
    world.leaves = {"weights.bin": bytes(8 * MIB)}
    sequences: list[int] = []

    def signs_of_life(name: str) -> list[int]:
        return [beacon.sequence for _, beacon in world.client.read_beacons() if beacon.runner == name]

    def slow(stepped: SteppedRunner) -> None:
        """Let what is pushed with such a result take longer than a lease."""
        if (
            stepped.executor.executed
            and stepped.runner.state.journal.of(ref.id).stage == JournalStage.BUILT
            and not sequences
        ):
            sequences.extend(signs_of_life(stepped.name))
            world.clock.sleep(150.0)
            sequences.extend(signs_of_life(stepped.name))

    try:
        for name in ("mini", "other"):
            stepped = world.runner(name)
            at_push(stepped, lambda _nth, stepped=stepped: slow(stepped))
            world.serve(stepped)
        ref = world.ask()
        has_one_end(world, ref.id)
        assert sequences[0] < sequences[1]
    finally:
        world.close()


def test_an_owner_who_takes_time_to_approve_keeps_the_claim(
    world: SteppedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def approve(*_: object, **__: object) -> Completed:
        world.clock.sleep(90.0)  # longer than the lease
        return Completed(("approve",), 0, b"", b"")

    monkeypatch.setattr(session, "run_process", approve)
    for name in ("mini", "other"):
        world.serve(world.runner(name, 'rate_per_hour = 0\napproval = ["/bin/true"]\n'))
    ref = world.ask()
    has_one_end(world, ref.id)
    assert len({claim.runner for claim in world.view(ref.id).claim.history}) == 1
