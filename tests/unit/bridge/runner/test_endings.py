"""Every ending of a request has a published result that verifies by itself."""

from __future__ import annotations

import datetime as dt

from bridge.errors import InfrastructureError
from bridge.limits import RESTART_GRACE_S
from bridge.presets.installed import load
from bridge.records.request import RunnerSelector
from bridge.system.clock import rfc3339
from tests.support.deep_folder import make_deep
from tests.support.runner_world import probe


def test_a_probe_is_claimed_started_run_judged_published_and_copied(world):
    w = world()
    ref = w.ask()
    runner = w.serve_once()
    outcome = runner.outcomes[0]
    assert outcome.delivery == "copied"
    history = w.requester.read_claim(ref.id).history
    states = [claim.state for claim in history]
    assert states[0] == "claimed"
    assert states[-1] == "terminal"
    assert "started" in states
    assert [spec.id for spec in w.executor.executed] == [ref.id]
    record = w.record(ref.id)
    assert (record.executor_ok, record.program_exit, record.reason) == (True, 0, "passed")
    assert record.claims == w.requester.read_claim(ref.id).chain[:-1]
    assert w.verdict(ref.id).id == ref.id
    assert b"".join(chunk.data for chunk in w.requester.read_log(ref.id)) == b"probing\n"


def test_a_program_that_fails_ends_as_program_failed(world):
    def fails(spec, directory):
        yield b"no\n"
        return 3

    w = world(program=fails)
    ref = w.ask()
    w.serve_once()
    claim = w.claim(ref.id)
    assert (claim.reason, claim.exit_code) == ("program_failed", 4)
    assert w.record(ref.id).program_exit == 3


def test_a_run_that_leaves_no_report_is_refused_by_the_gate_not_by_the_executor(world):
    def silent(spec, directory):
        yield b"done\n"
        return 0

    w = world(program=silent)
    ref = w.ask()
    w.serve_once()
    assert (w.claim(ref.id).reason, w.claim(ref.id).exit_code) == ("gate_rejected", 1)
    record = w.record(ref.id)
    assert (record.executor_ok, record.program_exit) == (True, 0)


def test_a_run_that_left_folders_deeper_than_any_path_ends_as_others_do_and_they_go(world):
    def digs(spec, directory):
        make_deep(directory.work)
        yield from probe(spec, directory)
        return 0

    w = world(program=digs)
    ref = w.ask()
    w.serve_once()
    assert w.record(ref.id).reason == "passed"
    assert list(w.state.glob(f"*/runs/{ref.id}")) == []


def test_a_run_whose_claim_cannot_be_renewed_for_a_restart_goes_on_and_is_followed_again(world):
    w = world()

    def left(spec, directory):
        yield b"first\n"
        w.faults.decide = lambda operation: "lost" if operation == "push" else None
        runner.leaving.set()
        yield b"second\n"

    w.program = left
    ref, runner = w.ask(), w.runner()
    runner.step()
    while runner.busy:
        runner.join()
    assert runner.outcomes == ()
    w.program, w.faults.decide = probe, lambda operation: None
    w.serve_once()
    record = w.record(ref.id)
    assert (record.executor_ok, record.program_exit, record.reason) == (True, 0, "passed")


def test_a_run_that_is_left_before_it_begins_keeps_its_claim_for_a_restart_and_runs_then(world):
    w = world()
    ref, runner, start = w.ask(), w.runner(), w.executor.start

    def leaving(*words):
        runner.leaving.set()
        return start(*words)

    w.executor.start = leaving
    runner.step()
    while runner.busy:
        runner.join()
    assert (w.executor.executed, w.claim(ref.id).state, w.claim(ref.id).lease_s) == ([], "started", RESTART_GRACE_S)
    w.executor.start = start
    w.serve_once()
    assert (len(w.executor.executed), w.record(ref.id).reason) == (1, "passed")


def test_an_unknown_preset_is_rejected_with_the_known_ones(world):
    w = world()
    ref = w.ask("no-such-preset")
    runner = w.runner()
    runner.step(only=ref.ref)  # such a branch shows in a listing of the whole bus only
    runner.join()
    claim = w.claim(ref.id)
    assert (claim.reason, claim.exit_code) == ("request_rejected", 2)
    assert "known: commit-comparison, " in claim.message
    assert w.executor.executed == []
    w.result(ref.id)


def test_a_planned_preset_says_so(world):
    planned = load("later", b'schema = 1\nname = "later"\nstatus = "planned"\ndescription = "d"\n')
    w = world(presets={"later": planned})
    ref = w.ask("later")
    w.serve_once()
    assert "planned, not built yet" in w.claim(ref.id).message
    assert w.claim(ref.id).reason == "request_rejected"


def test_request_code_is_refused_by_policy_on_a_served_bus(world):
    from bridge.records.request import Workload

    w = world()
    request = w.request("pytest-path", workload=Workload(commit="a" * 40, tree="b" * 40, origin="", dirty=False))
    ref = w.requester.submit(request.canonical(), request.ref, None).ref
    w.serve_once()
    assert (w.claim(ref.id).reason, w.claim(ref.id).exit_code) == ("policy_refused", 7)
    assert w.executor.executed == []


def test_a_preset_that_the_owner_does_not_allow_is_refused(world):
    w = world(policy_text='schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\n[presets]\nallow = ["k3-*"]\n')
    ref = w.ask()
    w.serve_once()
    assert (w.claim(ref.id).reason, w.claim(ref.id).exit_code) == ("policy_refused", 7)


def test_the_owners_approval_program_can_refuse(world):
    w = world(
        policy_text='schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\n'
        'approval = ["/bin/sh", "-c", "grep -q probe && echo not today; exit 1"]\n'
    )
    ref = w.ask()
    w.serve_once()
    assert w.claim(ref.id).reason == "policy_refused"
    assert "not today" in w.claim(ref.id).message


def test_a_request_that_expired_in_the_queue_is_never_started(world):
    w = world()
    past = w.clock.now() - dt.timedelta(hours=3)
    ref = w.ask(created=rfc3339(past), expires=rfc3339(past + dt.timedelta(hours=1)))
    w.serve_once()
    assert (w.claim(ref.id).reason, w.claim(ref.id).exit_code) == ("expired", 3)
    assert w.executor.executed == []
    assert f"valid until {rfc3339(past + dt.timedelta(hours=1))}" in w.claim(ref.id).message
    assert "check the clocks" in w.claim(ref.id).message


def test_the_policy_caps_how_long_a_request_is_valid(world):
    w = world(policy_text='schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nexpiry_max_s = 60.0\n')
    past = w.clock.now() - dt.timedelta(seconds=120)
    ref = w.ask(created=rfc3339(past), expires=rfc3339(past + dt.timedelta(hours=1)))
    w.serve_once()
    assert w.claim(ref.id).reason == "expired"


def test_a_request_cancelled_in_the_queue_starts_nothing(world):
    w = world()
    ref = w.ask()
    w.requester.ask_cancel(ref.id, b"{}")
    w.serve_once()
    assert (w.claim(ref.id).reason, w.claim(ref.id).exit_code) == ("cancelled", 6)
    assert w.executor.executed == []
    w.result(ref.id)


def test_a_running_request_is_cancelled_when_the_listing_shows_it(world):
    w = world()

    def until_stopped(spec, directory):
        w.requester.ask_cancel(spec.id, b"{}")
        while True:
            runner.step()
            yield b"."

    w.program = until_stopped
    ref = w.ask()
    runner = w.runner()
    runner.step()
    runner.join()
    assert (w.claim(ref.id).reason, w.claim(ref.id).exit_code) == ("cancelled", 6)
    assert w.record(ref.id).program_exit == 137


def test_a_runner_that_is_stopped_ends_its_run_as_interrupted(world):
    w = world()

    def until_stopped(spec, directory):
        while True:
            w.process.stopping.set()
            yield b"."

    w.program = until_stopped
    ref = w.ask()
    w.serve_once()
    assert (w.claim(ref.id).reason, w.claim(ref.id).exit_code) == ("interrupted", 3)
    w.result(ref.id)


def test_a_bug_in_the_executor_is_said_to_be_ours_and_published(world):
    def broken(spec, directory):
        raise RuntimeError("boom")
        yield b""

    w = world(program=broken)
    ref = w.ask()
    w.serve_once()
    assert w.claim(ref.id).reason == "infrastructure"
    assert "RuntimeError: boom" in w.claim(ref.id).message
    w.result(ref.id)


def test_an_ending_that_names_folders_of_the_machine_says_what_they_are(world):
    def breaks(spec, directory):
        yield b"one\n"
        raise InfrastructureError(f"cannot write {directory.work}/x; {w.state}/one/journal is full")

    w = world(program=breaks)
    ref = w.ask()
    w.serve_once()
    message = "cannot write ${RUN}/files/work/x; ${STATE}/journal is full"
    assert (w.claim(ref.id).message, w.record(ref.id).message) == (message, message)
    files = w.result(ref.id).files
    assert files["log.txt"] == f"kakeya: infrastructure: {message}\n".encode()
    assert [name for name, data in files.items() if str(w.state).encode() in data] == []


def test_a_request_for_another_runner_or_with_other_labels_stays_in_the_queue(world):
    w = world()
    other = w.ask(runner=RunnerSelector(name="studio"))
    labelled = w.ask(runner=RunnerSelector(labels=("cuda",)))
    runner = w.runner()
    assert runner.step() == 0  # nothing it could ever take
    assert w.requester.read_claim(other.id) is None
    assert w.requester.read_claim(labelled.id) is None
    assert any("studio" in line for line in w.log_lines)
    assert any("cuda" in line for line in w.log_lines)


def test_a_paused_runner_takes_nothing_until_it_is_resumed(world):
    w = world()
    w.process.folder.pause.touch()
    ref = w.ask()
    runner = w.runner()
    assert runner.step() == 1
    assert w.requester.read_claim(ref.id) is None
    w.process.folder.pause.unlink()
    w.serve_once(runner)
    assert w.claim(ref.id).state == "terminal"


def test_the_disk_floor_is_looked_at_before_anything_is_claimed(world):
    w = world(policy_text=f'schema = 1\nname = "mini"\n[limits]\ndisk_floor_bytes = {1 << 60}\n')
    ref = w.ask()
    assert w.runner().step() == 1
    assert w.requester.read_claim(ref.id) is None
    assert any("disk" in line for line in w.log_lines)


def test_the_rate_of_unsigned_requests_is_limited(world):
    w = world(policy_text='schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 1\n')
    first, second = w.ask(), w.ask()
    runner = w.serve_once()
    runner.step()
    ended = [ref for ref in (first, second) if w.requester.read_claim(ref.id) is not None]
    assert len(ended) == 1
    assert any("rate_per_hour" in line for line in w.log_lines)
