"""Somebody deletes claims on the remote while runs go on: each run starts once and its result is published."""

from __future__ import annotations

import subprocess

import pytest

WAIT_FOR_GO = "while [ ! -e $(dirname $0)/counted/go ]; do sleep 0.05; done"


def delete_claim(s, ref) -> None:
    git = ["git", "-C", s.folder / "bus.git", "update-ref", "-d", f"refs/kakeya/claim/{ref.id}"]
    subprocess.run(git, check=True)


def test_a_claim_deleted_while_its_run_goes_on_is_put_back_and_the_result_published(site):
    s = site(work=WAIT_FOR_GO, lease_s=12.0)  # a busy machine renews within it
    s.create_bus()
    ref = s.ask()
    s.start("serve", "--bus", s.route)
    s.until(s.starts, "never started")
    before = s.claim(ref)
    delete_claim(s, ref)
    s.until(lambda: s.claim(ref) is not None, "never put back")
    (s.folder / "counted" / "go").touch()

    claim = s.ended(ref)
    assert (claim.runner, claim.reason) == (before.runner, "gate_rejected")  # an empty report: it ran to its end
    assert s.starts() == [ref.id]


def test_a_claim_deleted_while_its_runner_was_down_is_put_back_and_the_run_followed(site):
    s = site(work=WAIT_FOR_GO)
    s.create_bus()
    ref = s.ask()
    runner = s.start("serve", "--bus", s.route)
    s.until(s.starts, "never started")
    runner.kill()
    runner.wait()
    delete_claim(s, ref)
    (s.folder / "counted" / "go").touch()

    s.run("once", "--bus", s.route)
    assert s.ended(ref).reason == "gate_rejected"
    assert s.starts() == [ref.id]


@pytest.mark.ci
def test_a_claim_deleted_beside_a_second_runner_starts_nothing_again_and_publishes_no_refusal(site):
    s = site(work=WAIT_FOR_GO, lease_s=12.0)  # a busy machine renews within it
    for name in ("one", "two"):
        assert s.run("keygen", name=name).code == 0
    s.create_bus()
    ref = s.ask()
    for name in ("one", "two"):
        s.start("serve", "--bus", s.route, name=name)
    s.until(s.starts, "never started")
    owner = s.claim(ref).runner
    s.until(lambda: is_shown(s, owner, ref), "its beacon never showed the run")
    for _ in range(2):
        delete_claim(s, ref)
        s.until(lambda: s.claim(ref) is not None, "never put back")
        assert s.claim(ref).runner == owner
    (s.folder / "counted" / "go").touch()

    claim = s.ended(ref)
    assert (claim.runner, claim.reason) == (owner, "gate_rejected")  # an empty report: it ran to its end
    assert s.starts() == [ref.id]
    assert not any("in before" in log.read_text() for log in s.folder.glob("*.log"))


def is_shown(s, name, ref) -> bool:
    return any(ref.id in beacon.running for _, beacon in s.requester().read_beacons() if beacon.runner == name)
