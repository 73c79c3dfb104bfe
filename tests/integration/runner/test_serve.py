"""The real command on a real bus: serve, stop, drain, pause, suspend, once, embedded."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.embedded import ensure_embedded
from bridge.records.request import LimitRequest
from bridge.system.clock import SystemClock
from tests.fakes.asking import make_request, push

ROOT = Path(__file__).parents[3]


def test_serve_makes_a_bus_takes_requests_shows_a_beacon_and_stops_on_term(site):
    s = site()
    runner = s.start("serve", "--bus", s.route, "--create-bus")
    s.until((s.folder / "state-mini" / "lock").exists, "never locked")
    s.until(lambda: "serves" in (s.folder / "mini.log").read_text(), "never served")
    refs = [s.ask(), s.ask()]
    assert {s.ended(ref).reason for ref in refs} == {"gate_rejected"}
    beacons = s.requester().read_beacons()
    assert [beacon.runner for _, beacon in beacons] == ["mini"]
    assert "count" in beacons[0][1].presets
    runner.terminate()
    assert runner.wait(timeout=240) == 128 + signal.SIGTERM
    assert sorted(s.starts()) == sorted(ref.id for ref in refs)


def test_a_second_runner_of_the_same_name_is_refused(site):
    s = site()
    s.start("serve", "--bus", s.route, "--create-bus")
    s.until(lambda: "serves" in (s.folder / "mini.log").read_text(), "never served")
    second = s.run("serve", "--bus", s.route)
    assert second.code == 3
    assert "another runner of this name" in second.stderr


def test_a_served_runner_hears_a_policy_that_changes_without_a_restart(site):
    s = site()
    s.create_bus()
    s.start("serve", "--bus", s.route)
    assert s.ended(s.ask()).reason == "gate_rejected"  # an empty report: the program ran to its end

    policy = s.policy()
    allowing = policy.read_text()
    policy.write_text(allowing.replace("[presets]\n", '[presets]\nallow = ["nothing"]\n'))
    refused = s.ended(s.ask())
    assert refused.reason == "policy_refused"
    assert len(s.starts()) == 1

    policy.write_text("slots = 2\n" + allowing)
    waits = s.ask()
    s.until(lambda: "slots changed" in s.run("status").stdout, "status never said why it takes nothing")
    s.until(lambda: "slots changed" in s.requester().read_beacons()[0][1].not_taking, "the beacon never said it")
    assert s.claim(waits) is None

    policy.write_text(allowing)
    assert s.ended(waits).reason == "gate_rejected"
    assert len(s.starts()) == 2


def going(s):
    """Start a runner with a run in its middle; return both."""
    s.set_work(f"until [ -e {s.folder}/counted/go-on ]; do sleep 0.05; done; echo went on")
    runner = s.start("serve", "--bus", s.route, "--create-bus")
    s.until(lambda: "serves" in (s.folder / "mini.log").read_text(), "never served")
    ref = s.ask()
    s.until(s.starts, "never started")
    return runner, ref


def test_a_restarted_runner_follows_its_run_and_publishes_it_once(site):
    s = site()
    runner, ref = going(s)
    s.until(lambda: s.requester().read_log(ref.id), "its log was never sent")
    runner.terminate()
    assert runner.wait(timeout=240) == 128 + signal.SIGTERM
    left = s.requester().view(ref.id).claim.claim
    assert (left.state, left.lease_s) == ("started", 600.0)

    s.start("serve", "--bus", s.route)
    (s.folder / "counted" / "go-on").touch()
    assert s.ended(ref).reason == "gate_rejected"  # an empty report: the program ran to its end
    assert s.starts() == [ref.id]
    chunks = s.requester().read_log(ref.id)
    assert b"".join(chunk.data for chunk in chunks) == b"working\nwent on\n"
    assert (chunks[0].data, chunks[-1].head.final) == (b"working\n", True)
    assert s.requester().view(ref.id).claim.claim.lease_s < 600.0


@pytest.mark.ci
def test_stop_leaves_the_run_and_stop_runs_ends_it_also_without_a_runner(site):
    s = site()
    runner, ref = going(s)
    stopped = s.run("stop")
    assert (stopped.code, runner.wait(timeout=240)) == (0, 0)
    assert "1 run left going" in stopped.stderr
    assert "1 run ended as interrupted" in s.run("stop", "--runs").stderr
    assert "nothing is running" in s.run("stop").stderr

    s.start("serve", "--bus", s.route)
    assert s.ended(ref).reason == "interrupted"
    assert s.starts() == [ref.id]


@pytest.mark.ci
def test_the_owner_sees_a_run_ends_it_alone_and_is_told(site):
    s = site()
    note, figures = s.folder / "told.json", s.folder / "kakeya.prom"
    teller = s.folder / "tell"
    write = f'cat > {note}.part && echo "$KAKEYA_REASON" >> {note}.part && mv {note}.part {note}'
    teller.write_text(f"#!/bin/sh\n{write}\n")
    teller.chmod(0o755)
    policy = s.policy()
    policy.write_text(f'notify = ["{teller}"]\nmetrics = "{figures}"\n{policy.read_text()}')
    runner, ref = going(s)
    waits = s.ask()
    waiting = 'waiting{runner="mini"} 1'
    s.until(lambda: figures.exists() and waiting in figures.read_text(), "the waiting request was never seen")
    status = json.loads(s.run("status", "--json").stdout)
    assert (status["state"], [(run["id"], run["preset"], run["requester"]) for run in status["running"]]) == (
        "serving", [(ref.id, "count", "unsigned")],
    )  # fmt: skip
    assert [(request["id"], request["why"]) for request in status["queue"]["requests"]] == [
        (waits.id, "all slots are busy")
    ]
    assert "ended as interrupted" in s.run("stop", "--run", ref.id[-8:]).stderr
    assert s.ended(ref).reason == "interrupted"
    s.until(note.exists, "nobody was told")
    document, reason = note.read_text().splitlines()
    assert (json.loads(document)["run_id"], reason) == (ref.id, "interrupted")
    (s.folder / "counted" / "go-on").touch()
    assert s.ended(waits).reason == "gate_rejected"
    assert runner.poll() is None
    lines = s.run("status").stdout.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("ended")] == ["gate_rejected", "interrupted"]
    s.until(lambda: 'reason="interrupted"} 1' in figures.read_text(), "the figures never had the end")


@pytest.mark.ci
def test_drain_now_ends_the_run_as_interrupted_and_the_runner_after_it(site):
    s = site()
    runner, ref = going(s)
    assert s.run("drain", "--now").code == 0

    assert runner.wait(timeout=240) == 0
    claim = s.ended(ref)
    assert (claim.reason, claim.exit_code) == ("interrupted", 3)


@pytest.mark.ci
def test_drain_says_when_there_is_no_runner_and_leaves_no_order_behind(site):
    s = site()
    s.create_bus()
    drained = s.run("drain")
    assert (drained.code, "no runner is running here; nothing is running" in drained.stderr) == (0, True)
    assert not (s.folder / "state-mini" / "drain").exists()


def test_cancelling_ends_the_whole_job_and_publishes(site):
    s = site()
    s.set_work(f"sh -c 'trap \"\" TERM; sleep 300' & echo $! > {s.folder}/counted/child; wait")
    s.start("serve", "--bus", s.route, "--create-bus")
    s.until(lambda: "serves" in (s.folder / "mini.log").read_text(), "never served")
    ref = s.ask()
    child = s.folder / "counted" / "child"
    s.until(lambda: child.exists() and child.read_text().strip(), "never started")
    s.requester().ask_cancel(ref.id, b"{}")
    claim = s.ended(ref)
    assert (claim.reason, claim.exit_code) == ("cancelled", 6)
    assert not alive(int(child.read_text()))


@pytest.mark.ci
def test_a_drained_runner_ends_after_what_it_runs(site):
    s = site(work="sleep 1")
    runner = s.start("serve", "--bus", s.route, "--create-bus")
    s.until(lambda: "serves" in (s.folder / "mini.log").read_text(), "never served")
    ref = s.ask()
    s.until(s.starts, "never started")
    assert s.run("drain").code == 0
    assert runner.wait(timeout=240) == 0
    assert s.ended(ref).reason == "gate_rejected"


@pytest.mark.ci
def test_a_suspended_owner_is_finalised_by_another_and_cannot_publish_when_it_wakes(site):
    s = site(work="sleep 300", lease_s=3.0)
    s.create_bus()
    owner = s.start("serve", "--bus", s.route, name="sleeper")
    s.until(lambda: "serves" in (s.folder / "sleeper.log").read_text(), "never served")
    ref = s.ask()
    s.until(s.starts, "never started")
    os.kill(owner.pid, signal.SIGSTOP)
    s.start("serve", "--bus", s.route, name="heir")
    claim = s.ended(ref)
    assert (claim.reason, claim.runner, claim.exit_code) == ("runner_lost", "heir", 3)
    os.kill(owner.pid, signal.SIGCONT)
    s.until(lambda: "new owner" in (s.folder / "sleeper.log").read_text(), "the owner never noticed")
    assert s.claim(ref) == claim
    assert s.starts() == [ref.id]


def test_once_takes_the_named_branch_and_ends_in_its_exit_code(site):
    s = site()
    assert s.run("once", "--bus", s.route).code == 3  # no bus yet
    assert s.run("once", "--bus", s.route, "--create-bus").code == 0  # idle
    first, second = s.ask(), s.ask("no-such-preset")
    done = s.run("once", "--bus", s.route, "--branch", second.ref.removeprefix("refs/heads/"))
    assert done.code == 2, done.stderr
    assert s.claim(first) is None
    assert s.run("once", "--bus", s.route).code == 1
    assert s.claim(first).state == "terminal"
    wrong = s.run("once", "--bus", f"{s.route}#{'0' * 32}")
    assert wrong.code == 3
    assert "fork" in wrong.stderr or "carries" in wrong.stderr


@pytest.mark.ci
def test_once_sees_a_cancel_while_it_runs(site):
    s = site(work="sleep 300")
    s.create_bus()
    ref = s.ask()
    runner = s.start("once", "--bus", s.route)
    s.until(s.starts, "never started")
    s.requester().ask_cancel(ref.id, b"{}")
    assert runner.wait(timeout=240) == 6
    assert s.ended(ref).reason == "cancelled"


@pytest.mark.ci
def test_a_run_past_its_own_limit_is_timed_out(site):
    s = site(work="sleep 300")
    s.create_bus()
    ref = s.ask(limits=LimitRequest(wall_s=1.0))
    assert s.run("once", "--bus", s.route).code == 5
    assert s.ended(ref).reason == "timed_out"
    collected = s.run("gc", "--bus", s.route, "--older-than", "0")
    assert (collected.code, collected.stdout) == (0, "")  # nothing goes before a request could have expired
    assert s.ended(ref).reason == "timed_out"


@pytest.mark.ci
def test_pause_keeps_the_queue_and_resume_takes_it(site):
    s = site()
    s.create_bus()
    assert s.run("pause").code == 0
    ref = s.ask()
    assert s.run("once", "--bus", s.route).code == 0
    assert s.claim(ref) is None
    assert s.run("resume").code == 0
    assert s.run("once", "--bus", s.route).code == 1


@pytest.mark.ci
def test_the_embedded_runner_serves_its_machine_until_it_is_idle(site):
    s = site()
    data = s.folder / "data"
    clock = SystemClock()
    route = ensure_embedded(data, clock)
    bus = open_bus(str(route), repository=None, state=s.folder / "requester-2", clock=clock)
    ref = push(bus, make_request(bus.identity().bus_id, "count"))
    policy = s.policy("embedded")
    argv = [sys.executable, "-m", "bridge.cli.host.main", "serve", "--embedded", str(data), "--policy", str(policy)]
    done = subprocess.run([*argv, "--idle", "1"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    claim = bus.view(ref.id).claim.claim
    assert claim.state == "terminal"
    spec = json.loads(bus.read_result(claim.result_oid).files["spec.json"])
    assert set(spec["labels"]) == {"embedded", "trust_pushers"}
    assert next(iter(data.rglob("bus.git"))).parent.stat().st_mode & 0o077 == 0


@pytest.mark.ci
def test_doctor_names_a_remedy_for_what_it_finds(site):
    s = site()
    pinned = s.run("keygen").stdout.strip()
    assert re.fullmatch("mini=[A-Za-z0-9+/]{43}=", pinned)
    ran = s.run("doctor", "--bus", s.route, "--json")
    findings = {finding["name"]: finding for finding in json.loads(ran.stdout)}
    assert ran.code == 1
    assert findings["bus"]["level"] == "fail"
    assert "--create-bus" in findings["bus"]["remedy"]
    assert findings["policy"]["level"] == "ok"
    assert findings["key"]["text"].endswith(f"pinned as {pinned}")  # what requesters pin
    assert all(f["remedy"] for f in findings.values() if f["level"] == "fail")
    (s.folder / "mini.toml").chmod(0o644)
    assert "chmod 600" in s.run("doctor").stdout


@pytest.mark.ci
def test_the_owner_can_look_at_policy_and_journal(site):
    s = site()
    s.create_bus()
    ref = s.ask()
    s.run("once", "--bus", s.route)
    assert json.loads(s.run("policy", "check").stdout)["name"] == "mini"
    assert "allowed by presets.allow" in s.run("policy", "explain", "count").stdout
    assert "policy_refused" in s.run("policy", "explain", "pytest-path").stdout
    assert "schema = 1" in s.run("policy", "example").stdout
    shown = s.run("state", "show").stdout
    assert "the chain of digests holds" in shown
    assert "1 requests were let in" in shown
    events = s.run("state", "show", ref.id[-8:]).stdout
    assert [line.split()[2] for line in events.splitlines()][:2] == ["fetched", "claimed"]
    with sqlite3.connect(s.folder / "state-mini" / "state.sqlite") as rows:
        rows.execute("UPDATE journal SET event = 'started' WHERE event = 'claimed'")
    rows.close()
    altered = s.run("state", "show")
    assert (altered.code, "event 1: the chain does not hold" in altered.stderr) == (1, True)


def alive(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True
