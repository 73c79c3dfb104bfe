"""A remote that cannot move two refs together: a claim and the start of its run arrive apart, and one run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.bus.refbus import RefBus
from bridge.bus.store.git import GitStore
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from bridge.errors import BegunError, FencedError
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import bare, git
from tests.fakes.memory_bus import bus_record


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    path = bare(tmp_path / "bus.git")
    git("config", "receive.advertiseAtomic", "false", cwd=path)
    return path


@pytest.fixture
def runners(remote: Path, tmp_path: Path) -> tuple[Actor, Actor]:
    clock, url = FakeClock(), f"file://{remote}"

    def runner(name: str) -> Actor:
        store = GitStore(Route(url, url, (), is_local=True), tmp_path / name, pauses_s=(0.0, 0.0))
        return Actor(RefBus(store, clock=clock, pacer=Pacer(None, 60.0, clock)), clock, name)

    first, second = runner("first"), runner("second")
    first.bus.create(bus_record(clock))
    return first, second


def test_who_began_a_run_keeps_it_where_a_claim_of_another_says_started_for_a_moment(runners, remote):
    first, second = runners
    ref = first.submit().ref
    claim = first.claim(ref)
    delete(remote, f"refs/kakeya/claim/{ref.id}")
    began = second.start(ref, second.claim(ref))
    delete(remote, f"refs/kakeya/claim/{ref.id}")
    first.bus.put_back(claim)
    with pytest.raises(BegunError):
        first.start(ref, claim)
    assert tip(remote, f"refs/kakeya/claim/{ref.id}") == began.oid
    assert second.renew(ref, began).claim.state == "started"


def test_who_was_taken_over_leaves_no_start_behind(runners, remote):
    first, second = runners
    ref = first.submit().ref
    claim = first.claim(ref)
    view = second.bus.read_claim(ref.id)
    assert view is not None
    taken = second.take_over(ref, view)
    with pytest.raises(FencedError):
        first.start(ref, claim)
    started = second.start(ref, taken)
    assert tip(remote, f"refs/kakeya/start/{ref.id}") == started.oid


def delete(remote: Path, ref: str) -> None:
    git("update-ref", "-d", ref, cwd=remote)


def tip(remote: Path, ref: str) -> str:
    return git("rev-parse", ref, cwd=remote).strip()
