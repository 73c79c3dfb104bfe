"""A real program with two arms takes its turns from a real supervisor, launch after launch."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import engine.turns
from bridge.executor.local import LocalExecutor
from bridge.executor.turns.burner import Burner
from bridge.launches import pair_program
from bridge.records.jobspec import Command, SandboxSpec
from bridge.records.turns import LaunchSeries, StopRule
from bridge.run.stop_rule import decide, log_ratio
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs
from tests.support.waiting import until

# Arm "candidate" takes half the time a token; a sample has 160 tokens.
PROGRAM = """
import importlib.util, json, os, sys, time
spec = importlib.util.spec_from_file_location("turns", sys.argv[1])
module = importlib.util.module_from_spec(spec); sys.modules["turns"] = module; spec.loader.exec_module(module)
turns = module.Turns.open()
launch = turns.ready(samples=3, calibration={"prompts": 2})
token_s = {"baseline": 0.0004, "candidate": 0.0002}
at = {"baseline": 0, "candidate": 0}
own_s = []
for order in turns:
    began, tokens, over = time.monotonic(), 0, False
    if order.seconds is not None:
        while time.monotonic() - began < order.seconds:
            tokens += 1
            sum(range(2000)) if order.arm == "baseline" else time.sleep(0.002)
    else:
        aim = 160 if order.tokens is None else min(160, (at[order.arm] // order.tokens + 1) * order.tokens)
        tokens = aim - at[order.arm]
        while time.monotonic() - began < tokens * token_s[order.arm]:
            pass
        over = aim == 160
        at[order.arm] = 0 if over else aim
        own_s.append(time.monotonic() - began)
    turns.done(tokens, over=over)
with open(os.environ["KAKEYA_OUT"] + "/launch-%d.json" % launch.number, "w") as file:
    said = {"nonce": launch.nonce, "calibration": dict(launch.calibration), "own_s": own_s}
    json.dump(said, file)
"""
RULE = StopRule(least=2, most=4, half_width=0.5)


def series(jobs: Jobs, plan: LaunchSeries, program: str = PROGRAM, reference: tuple[str, ...] | None = None):
    argv = (sys.executable, "-I", "-S", "-c", program, str(Path(engine.turns.__file__)))
    spec = jobs.spec(argv=[argv], sandbox=SandboxSpec(mode="off"), outputs=())
    command = Command(name="study", argv=argv, launches=plan, reference=None if reference is None else argv + reference)
    return jobs.execute(spec.evolve(commands=(command,)))


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    jobs = Jobs(LocalExecutor(SystemClock()), tmp_path_factory.mktemp("turns"))
    plan = LaunchSeries(arms=("baseline", "candidate"), rule=RULE, turn_least_s=0.004, solo_s=0.1)
    return plan, series(jobs, plan)


@pytest.mark.ci
def test_launches_go_on_until_the_rule_ends_them(executed):
    plan, execution = executed

    assert (execution.ok, execution.ending, execution.program_exit) == (True, "exited", 0)
    assert [launch.number for launch in execution.launches] == list(range(len(execution.launches)))
    assert 3 <= len(execution.launches) <= 5
    assert decide(plan, execution.launches).stop
    assert not decide(plan, execution.launches[:-1]).stop
    assert [result.name for result in execution.commands] == ["study"]


def test_the_supervisors_stamps_enclose_what_the_program_measured(executed):
    plan, execution = executed

    for launch in execution.launches:
        assert launch.cut is None
        own_s = json.loads(execution.reports[f"launch-{launch.number}.json"])["own_s"]
        seen_s = [turn.done_s - turn.go_s for turn in launch.turns]
        assert len(own_s) == len(seen_s)
        assert all(turn_s >= own for turn_s, own in zip(seen_s, own_s, strict=True))
        spent_s = {arm: sum(turn.done_s - turn.go_s for turn in launch.turns if turn.arm == arm) for arm in plan.arms}
        assert log_ratio(plan, launch) == pytest.approx(math.log(spent_s["baseline"] / spent_s["candidate"]))
        stamps = [stamp for turn in launch.turns for stamp in (turn.go_s, turn.done_s)]
        assert stamps == sorted(stamps)
        assert launch.started_s <= launch.ready_s <= stamps[0] <= stamps[-1] <= launch.ended_s


def test_launch_0_finds_the_length_of_a_turn_and_hands_it_on(executed):
    _, execution = executed
    first, *later = execution.launches

    assert {launch.turn_tokens for launch in later} == {first.turn_tokens}
    assert first.turn_tokens > 8
    assert json.loads(execution.reports["launch-1.json"])["calibration"] == {"prompts": 2}


def test_every_sample_is_worked_on_by_both_arms_in_drawn_order(executed):
    _, execution = executed
    firsts = []
    for launch in execution.launches:
        assert {(turn.arm, turn.sample) for turn in launch.turns if turn.over} == {
            (arm, sample) for arm in ("baseline", "candidate") for sample in range(3)
        }
        for sample in range(3):
            arms = [turn.arm for turn in launch.turns if turn.sample == sample]
            assert all(set(arms[at : at + 2]) == {"baseline", "candidate"} for at in range(0, len(arms), 2))
            firsts += arms[::2]
    assert len(firsts) >= 25  # so that one arm is first everywhere by chance once in millions of runs
    assert set(firsts) == {"baseline", "candidate"}


def test_each_arm_runs_alone_once_and_one_is_seen_to_sleep(executed):
    _, execution = executed
    worked_s: dict[str, list[float]] = {"baseline": [], "candidate": []}
    for launch in execution.launches:
        assert sorted(solo.arm for solo in launch.solos) == ["baseline", "candidate"]
        for solo in launch.solos:
            assert solo.done_s - solo.go_s >= 0.1
            worked_s[solo.arm].append(solo.cpu_s)
    # Processor time alone: on a busy machine a sleeper that wakes stands in the run queue too.
    assert sum(worked_s["candidate"]) < sum(worked_s["baseline"]) / 2


def test_the_nonce_is_new_in_every_launch_and_known_to_the_program(executed):
    _, execution = executed
    nonces = [json.loads(execution.reports[f"launch-{launch.number}.json"])["nonce"] for launch in execution.launches]

    assert nonces == [launch.nonce for launch in execution.launches]
    assert len(set(nonces)) == len(nonces)


def test_a_program_that_answers_for_another_turn_is_cut(tmp_path):
    jobs = Jobs(LocalExecutor(SystemClock()), tmp_path)
    plan = LaunchSeries(arms=("baseline", "candidate"), rule=StopRule(least=2, most=2), solo_s=0.0)
    execution = series(jobs, plan, PROGRAM.replace("turns.done(tokens", "turns._number += 1; turns.done(tokens"))

    (launch,) = execution.launches
    assert "turn 1 was answered by" in launch.cut
    assert b"launch 0 of study was cut" in execution.log


def test_a_program_that_counts_beyond_what_a_record_may_hold_is_cut(tmp_path):
    """Its run is kept: an integer of more than 64 digits makes a record that nobody reads."""
    jobs = Jobs(LocalExecutor(SystemClock()), tmp_path)
    plan = LaunchSeries(arms=("baseline", "candidate"), rule=StopRule(least=2, most=2), solo_s=0.0)
    execution = series(jobs, plan, PROGRAM.replace("turns.done(tokens", "turns.done(10**70"))

    (launch,) = execution.launches
    assert "turn 1 was answered by" in launch.cut
    assert (execution.ok, execution.ending, execution.message) == (True, "exited", None)


def test_a_program_that_takes_no_turns_is_cut(tmp_path):
    jobs = Jobs(LocalExecutor(SystemClock()), tmp_path)
    plan = LaunchSeries(arms=("baseline", "candidate"), rule=StopRule(least=2, most=2), solo_s=0.0)
    execution = series(jobs, plan, "print('no turns')")

    assert [(launch.cut, launch.turns) for launch in execution.launches] == [("it ended before its last turn", ())]
    assert execution.launches[0].ready_s is None


@pytest.mark.ci
def test_the_first_turn_is_the_prefill_and_the_hosts_own_loop_follows_each_launch(tmp_path):
    plan = LaunchSeries(
        arms=("baseline", "candidate"), rule=StopRule(least=2, most=2), turn_least_s=0.004, solo_s=0.05, prefill=True
    )
    execution = series(Jobs(LocalExecutor(SystemClock()), tmp_path), plan, reference=("reference",))

    assert (execution.program_exit, len(execution.launches)) == (0, 3)
    (command,) = execution.commands
    assert command.argv[-1] != "reference"
    assert execution.launches[0].reference is None
    for launch in execution.launches[1:]:
        spent = {}
        for arm in plan.arms:
            for sample in range(3):
                first, *later = [turn for turn in launch.turns if (turn.arm, turn.sample) == (arm, sample)]
                assert (first.tokens, first.over, later[-1].over) == (1, False, True)
                spent[arm] = spent.get(arm, 0.0) + sum(turn.done_s - turn.go_s for turn in later)
        assert log_ratio(plan, launch) == pytest.approx(math.log(spent["baseline"] / spent["candidate"]))
        assert launch.reference.arm == "reference"
        assert launch.reference.done_s - launch.reference.go_s >= 0.05
        assert launch.reference.go_s > launch.turns[-1].done_s


def pair(jobs: Jobs, candidate: str):
    """Run a shell's line by turns with one that sleeps a little."""
    plan = LaunchSeries(arms=("baseline", "candidate"), rule=StopRule(least=2, most=2), unit="samples", solo_s=0.0)
    sides = ("--@baseline", "/bin/sh", "-c", "sleep 0.03", "--@candidate", "/bin/sh", "-c", candidate)
    argv = (sys.executable, "-I", "-S", pair_program.__file__, *sides)
    spec = jobs.spec(argv=[argv], sandbox=SandboxSpec(mode="off"), outputs=())
    return jobs.execute(spec.evolve(commands=(Command(name="pair", argv=argv, launches=plan),)))


@pytest.mark.skipif(sys.platform != "linux", reason="orphans come to a subreaper on Linux alone")
def test_what_a_program_of_a_pair_leaves_behind_works_in_its_turn(tmp_path):
    execution = pair(Jobs(LocalExecutor(SystemClock()), tmp_path), "sleep 0.1 & exit 0")

    assert (execution.ok, execution.program_exit) == (True, 0), execution.log
    assert [launch.cut for launch in execution.launches] == [None] * 3
    for turn in (turn for launch in execution.launches for turn in launch.turns):
        assert turn.done_s - turn.go_s >= (0.1 if turn.arm == "candidate" else 0.03)


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="orphans come to a subreaper on Linux alone")
def test_a_program_of_a_pair_that_leaves_something_behind_for_good_is_named(tmp_path):
    execution = pair(Jobs(LocalExecutor(SystemClock()), tmp_path), "sleep 1000 & exit 0")

    assert (execution.ok, execution.program_exit) == (True, 1)
    assert b"candidate: /bin/sh ended, and what it started went on for 10 s" in execution.log
    assert [launch.turns for launch in execution.launches] == [()]
    assert execution.commands[0].survivors == 0


def test_the_supervisor_holds_processors_in_drawn_launches_and_in_the_others_it_does_not(tmp_path):
    plan = LaunchSeries(arms=("baseline", "candidate"), rule=StopRule(least=2, most=4), solo_s=0.0, load="drawn")
    execution = series(Jobs(LocalExecutor(SystemClock()), tmp_path), plan)

    first, *counted = [launch.loaded for launch in execution.launches]
    assert (execution.program_exit, execution.ok, first, len(counted)) == (0, True, 0, 4)
    assert all(bool(earlier) != bool(later) for earlier, later in (counted[:2], counted[2:]))
    assert max(counted) == max(1, len(os.sched_getaffinity(0)) // 2 if sys.platform == "linux" else os.cpu_count() // 2)
    assert [launch.cut for launch in execution.launches] == [None] * 5
    assert not spinning()


def spinning() -> list[psutil.Process]:
    """Return the children of this process that hold processors."""
    return [child for child in psutil.Process().children() if "sum(range(100_000))" in " ".join(child.cmdline())]


def test_what_holds_a_processor_works_and_is_gone_afterwards():
    with Burner(2):
        until(lambda: len(spinning()) == 2, why="no two processes hold a processor")
        children = spinning()
        until(lambda: all(child.cpu_times().user > 0.2 for child in children), why="nothing was held")
    assert not any(child.is_running() for child in children)


def test_what_holds_a_processor_ends_with_a_supervisor_that_is_killed():
    program = (
        "import time\nfrom bridge.executor.turns.burner import Burner\n"
        "with Burner(1) as burner:\n    print(burner._children[0].pid, flush=True)\n    time.sleep(100)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as supervisor:
        child = psutil.Process(int(supervisor.stdout.readline()))
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, why="it went on")
