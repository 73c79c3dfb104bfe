"""Which run `run` and `attach` wait for, and how a wait ends that no result ends."""

from __future__ import annotations

import json

import pytest

from bridge.records.claim import RunProgress
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost
from tests.unit.bridge.cli.looking import plan, run_id


def test_a_wait_that_ends_first_is_pending_and_attach_goes_on(requester, host):
    plan(requester, host, claim_after_s=20)
    ran = requester.run("run", "mlx-env-probe", "--wait", "--wait-timeout", "5", "--json")
    assert (ran.code, ran.document["outcome"]["reason"], ran.document["state"]) == (8, "pending", "queued")
    assert ran.document["next"][0] == ["kakeya-mac", "attach", run_id(requester)]
    again = requester.run("attach", "@last")
    assert again.code == 0
    assert again.out.startswith("passed")


def test_running_the_same_again_attaches_and_new_forces_another(requester, host):
    first = requester.run("run", "mlx-env-probe")
    second = requester.run("run", "mlx-env-probe", "--json")
    assert second.document["id"] == first.out.strip()
    assert second.document["request"]["reattached"] is True
    third = requester.run("run", "mlx-env-probe", "--new")
    assert third.out != first.out
    other = requester.run("run", "mlx-env-probe", "--profile", "claim")
    assert other.out not in {first.out, third.out}


def test_another_clone_of_the_same_bus_attaches_too(requester, host, tmp_path):
    first = requester.run("run", "mlx-env-probe")
    clone = requester.second_clone(tmp_path / "other")
    (tmp_path / "other").mkdir()
    assert clone.run("run", "mlx-env-probe").out == first.out


def test_a_finished_run_is_not_attached_to(requester, host):
    plan(requester, host)
    first = requester.run("run", "mlx-env-probe", "--wait", "--json").document["id"]
    assert requester.run("run", "mlx-env-probe").out.strip() != first


def test_without_a_live_runner_nothing_is_sent(requester):
    ran = requester.run("run", "mlx-env-probe", "--json")
    assert ran.code == 3
    assert ran.document["outcome"]["reason"] == "no_runner"
    assert "no runner has ever been seen" in ran.err
    assert not requester.bus.snapshot().requests
    assert requester.run("run", "mlx-env-probe", "--queue").code == 0


def test_a_stale_beacon_is_named_within_two_polls(requester, host):
    requester.clock.sleep(3600)
    before = requester.clock.steady_s()
    ran = requester.run("run", "mlx-env-probe")
    assert ran.code == 3
    assert "mini last seen 60m ago" in ran.err
    assert requester.clock.steady_s() - before <= 2 * 2.0 + 0.1


def test_a_stale_clock_with_an_advancing_beacon_is_live(requester, host):
    requester.clock.sleep(3600)
    old = {"time": "2026-11-20T10:00:00.000Z"}
    requester.clock.plan(1.0, lambda: host.beat(**old))
    assert requester.run("run", "mlx-env-probe").code == 0


def test_a_runner_that_cannot_take_it_is_named_with_its_reason(requester, host):
    host.beat(presets=("pytest-path",))
    assert "does not offer mlx-env-probe" in requester.run("run", "mlx-env-probe").err
    host.beat()
    named = requester.run("run", "mlx-env-probe", "--runner", "studio").err
    assert "mini is not the runner that was asked for (studio)" in named
    assert "kakeya-mac runners shows names" in named
    assert "has no label gpu" in requester.run("run", "mlx-env-probe", "--runner", "gpu,quiet").err
    host.beat(state="paused")
    paused = requester.run("run", "mlx-env-probe").err
    assert "mini is paused" in paused
    assert "next    on the host: kakeya-runner resume" in paused
    host.beat(state="paused", not_taking="slots changed in policy.toml: restart the runner")
    stale = requester.run("run", "mlx-env-probe").err
    assert "mini is paused: slots changed in policy.toml: restart the runner" in stale
    assert "next    on the host: kakeya-runner status" in stale


def test_a_silent_runner_without_successor_is_lost_and_nothing_is_written(requester, host):
    sent = requester.run("run", "mlx-env-probe").out.strip()
    host.claim(sent)
    host.start(sent)
    requester.clock.sleep(3600)  # its beacon grows old too
    refs = dict(requester.bus.remote.refs)
    ran = requester.run("attach", sent, "--json")
    assert (ran.code, ran.document["outcome"]["reason"], ran.document["terminal"]) == (3, "runner_lost", False)
    assert requester.bus.remote.refs == refs
    host.beat()
    requester.clock.plan(3, lambda: host.finish(sent, "runner_lost", decision="rejected"))
    assert requester.run("attach", sent).out.startswith("runner_lost")


def test_why_a_placed_run_waits_turns_no_line_around(tmp_path):
    requester = Requester(tmp_path, record={"lease_s": 600.0})
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    sent = requester.run("run", "mlx-env-probe").out.strip()
    host.claim(sent)
    waits = RunProgress(step="queue", number=0, steps=0, waits="queued on slurm: \u202ereversed")
    host._advance(sent, state="started", phase="running", progress=waits)
    for words in ([], ["--json"], ["--json-lines"]):
        ran = requester.run("attach", sent, "--wait-timeout", "35", *words)
        assert (ran.code, "queued on slurm: reversed" in ran.err + ran.out) == (8, True), ran.err
        assert not any(mark in ran.err + ran.out for mark in ("\u202e", r"\u202e"))


def test_who_waits_for_a_silent_runner_waits_no_longer_than_its_bus_allows(requester, host):
    sent = requester.run("run", "mlx-env-probe").out.strip()
    host.claim(sent)
    host.start(sent, lease_s=1e300)
    ran = requester.run("attach", sent, "--json", "--wait-timeout", "3600")
    assert (ran.code, ran.document["outcome"]["reason"]) == (3, "runner_lost")


def test_an_expired_request_that_nobody_started_ends_the_wait(requester, host):
    ran = requester.run("run", "mlx-env-probe", "--expires", "60", "--wait", "--json")
    assert (ran.code, ran.document["outcome"]["reason"]) == (3, "expired")
    assert ran.document["next"][0][:2] == ["kakeya-mac", "retry"]


def test_a_look_at_an_expired_request_says_so_and_how_to_send_it_again(requester, host):
    sent = requester.run("run", "mlx-env-probe", "--expires", "60").out.strip()
    assert "waiting" in requester.run("status", sent).out
    requester.clock.sleep(150)
    out = requester.run("status", sent).out
    assert out.startswith("expired")
    assert "nobody started it before it expired" in out
    assert f"kakeya-mac retry {sent}" in out
    assert "waiting" not in out


def test_a_request_whose_branch_was_deleted_ends_the_wait(requester, host):
    sent = requester.run("run", "mlx-env-probe").out.strip()
    ref = host.ref(sent).ref
    requester.clock.plan(5, lambda: requester.bus.remote.refs.pop(ref))
    ran = requester.run("attach", sent, "--json")
    assert (ran.code, ran.document["outcome"]["reason"]) == (3, "bus")
    assert "its branch was deleted" in ran.document["outcome"]["message"]


def test_a_remote_that_is_away_for_a_while_is_waited_for(tmp_path):
    requester = Requester(tmp_path)
    host = ScriptedHost(MemoryBus(requester.bus.remote, clock=requester.clock), requester.clock)
    host.beat()
    requester.pin(host.sign())
    clock, faults = requester.clock, requester.bus.store.faults
    plan(requester, host, claim_after_s=70.0)
    clock.plan(5, lambda: setattr(faults, "decide", lambda operation: "lost"))
    clock.plan(80, lambda: setattr(faults, "decide", lambda operation: None))
    ran = requester.run("run", "mlx-env-probe", "--wait")
    assert ran.code == 0
    retries = [line for line in ran.err.splitlines() if "trying again" in line]
    assert [line[:5] for line in retries] == ["00:05", "00:35", "01:05"]
    assert "01:20 claimed · 01:20 running (limit 5m)" in ran.err


def test_a_remote_that_stays_away_ends_the_wait_with_its_name(tmp_path):
    requester = Requester(tmp_path)
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    faults = requester.bus.store.faults
    requester.clock.plan(5, lambda: setattr(faults, "decide", lambda operation: "lost"))
    ran = requester.run("run", "mlx-env-probe", "--wait", "--json")
    assert (ran.code, ran.document["outcome"]["reason"]) == (3, "remote")


def test_a_bound_on_the_wait_is_a_wait(requester, host):
    ran = requester.run("run", "mlx-env-probe", "--wait-timeout", "3")
    assert ran.code == 8


@pytest.mark.parametrize("changed", [{"schema": 99}, {"of_a_newer_version": True}], ids=["schema", "field"])
def test_a_request_that_a_newer_version_wrote_down_is_left_to_that_version(requester, host, sent, changed):
    folder = requester.folder / "data" / "requests"
    document = json.loads((folder / f"{sent}.json").read_text())
    newer = sent[:-1] + ("0" if sent[-1] != "0" else "1")
    request = json.loads(document["request"]) | {"id": newer} | changed
    document |= {"id": newer, "request": json.dumps(request)}
    (folder / f"{newer}.json").write_text(json.dumps(document))
    assert requester.run("run", "mlx-env-probe").out.strip() == sent
    assert requester.run("run", "mlx-env-probe", "--repeat", "2").code == 0
    rows = {row["id"]: row for row in requester.run("ls", "--json").document["data"]}
    assert (rows[sent]["preset"], rows[newer]["preset"]) == ("mlx-env-probe", None)
