"""Somebody deletes the bus record on the remote: it is put back, readers go by the root, and no second bus is made."""

from __future__ import annotations

import subprocess

import pytest

RECORD = "refs/kakeya/bus"


def git(s, *words) -> str:
    done = subprocess.run(["git", "-C", s.folder / "bus.git", *words], capture_output=True, text=True, check=True)
    return done.stdout


def record_of(s) -> str:
    return git(s, "show", f"{RECORD}:bus.json")


def test_a_record_deleted_beside_a_runner_is_put_back(site):
    s = site()
    s.create_bus()
    before = record_of(s)
    s.start("serve", "--bus", s.route)
    s.until(lambda: git(s, "for-each-ref", "refs/kakeya/runner").strip(), "never served")
    git(s, "update-ref", "-d", RECORD)
    s.until(lambda: git(s, "for-each-ref", RECORD).strip(), "never put back")
    assert record_of(s) == before
    ref = s.ask()
    assert s.ended(ref).reason == "gate_rejected"


@pytest.mark.parametrize("owned", [True, False])
def test_a_record_deleted_while_no_runner_is_there_is_put_back_at_the_next_start(site, owned):
    s = site()
    if owned:
        assert s.run("keygen").code == 0
    s.run("once", "--bus", s.route, "--create-bus")
    before = record_of(s)
    git(s, "update-ref", "-d", RECORD)
    again = s.run("once", "--bus", s.route, "--create-bus")
    assert again.code == 0, again.stderr
    assert record_of(s) == before
    assert bool(git(s, "for-each-ref", "refs/kakeya/root").strip()) is owned


def test_a_stranger_makes_no_second_bus_where_a_root_is(site):
    s = site()
    assert s.run("keygen").code == 0
    s.run("once", "--bus", s.route, "--create-bus")
    git(s, "update-ref", "-d", RECORD)
    other = s.run("once", "--bus", s.route, "--create-bus", name="two")
    assert "carries the root of a bus" in other.stderr
    assert (other.code, git(s, "for-each-ref", RECORD)) == (3, "")
