"""Renewals take each other's place: a chain stays short, and an old one pushed again keeps no dead run alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.refs import names
from bridge.bus.store.gather import WorkBudget
from bridge.errors import BusError, FencedError
from bridge.run.lease import LeaseWatch
from bridge.runner.run.claim_renewal import following
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import bare, git
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def host(clock: FakeClock) -> Actor:
    return Actor(MemoryBus(clock=clock), clock)


def started(host: Actor):
    ref = host.submit().ref
    held_claim = host.claim(ref)
    return ref, host.bus.advance(held_claim, following(held_claim, host.clock, state="started", phase="running"))


def renewed(host: Actor, held_claim, times: int):
    for _ in range(times):
        host.clock.advance(1.0)
        held_claim = host.bus.advance(held_claim, following(held_claim, host.clock))
    return held_claim


def test_a_thousand_renewals_leave_a_chain_of_four(host: Actor) -> None:
    ref, held_claim = started(host)
    held_claim = renewed(host, held_claim, 1000)
    assert held_claim.claim.beat == 1000
    held_claim = host.bus.advance(held_claim, following(held_claim, host.clock, phase="judging"))
    held_claim = host.bus.publish(
        held_claim, following(held_claim, host.clock, state="terminal", phase=None, reason="passed", exit_code=0)
    )
    view = MemoryBus(host.bus.remote, clock=host.clock).read_claim(ref.id)
    assert [(entry.state, entry.sequence, entry.beat) for entry in view.history] == [
        ("claimed", 0, 0),
        ("started", 1, 0),
        ("started", 2, 1001),
        ("terminal", 3, 0),
    ]
    assert len(host.bus.claim_commits(held_claim.chain)) == 4


def test_a_renewal_that_does_not_count_on_is_refused(host: Actor) -> None:
    _, held_claim = started(host)
    held_claim = renewed(host, held_claim, 3)
    with pytest.raises(BusError, match="does not count on"):
        host.bus.advance(held_claim, following(held_claim, host.clock).evolve(beat=3))


def test_an_old_renewal_pushed_again_is_replaced_by_its_runner_and_begins_no_lease_anew(host: Actor) -> None:
    ref, held_claim = started(host)
    name = f"refs/kakeya/claim/{ref.id}"
    old = renewed(host, held_claim, 2)
    new = renewed(host, old, 1)
    host.bus.remote.refs[name] = old.oid

    watch, observer = LeaseWatch(host.clock), MemoryBus(host.bus.remote, clock=host.clock)
    for oid in (new.oid, old.oid, new.oid, old.oid, new.oid, old.oid):
        host.bus.remote.refs[name] = oid
        watch.listed(observer.snapshot().claims)
        for run_id, tip in observer.newest_claims(observer.snapshot().claims, WorkBudget(9)).items():
            watch.read(run_id, tip.oid, tip.claim.position)
        host.clock.advance(5.0)
    assert watch.expired(ref.id, 15.0)

    last = renewed(host, new, 1)  # its tip is the old one: set back, and put right
    assert host.bus.remote.refs[name] == last.oid


def test_a_successor_is_not_taken_for_an_old_renewal(host: Actor) -> None:
    ref, held_claim = started(host)
    held_claim = renewed(host, held_claim, 2)
    other = MemoryBus(host.bus.remote, clock=host.clock)
    view = other.read_claim(ref.id)
    lost = following(
        view.held(), host.clock, state="terminal", runner="heir", phase=None, reason="runner_lost", exit_code=3
    )
    other.publish(view.held(), lost)
    with pytest.raises(FencedError):
        renewed(host, held_claim, 1)


@pytest.mark.parametrize(("refuses", "renewals", "length"), [(False, "amend", 4), (True, "chain", 7)])
def test_a_remote_that_refuses_other_moves_keeps_a_chain(
    tmp_path: Path, clock: FakeClock, *, refuses: bool, renewals: str, length: int
) -> None:
    path = bare(tmp_path / "remote.git")
    git("config", "receive.denyNonFastForwards", str(refuses).lower(), cwd=path)
    host = Actor(open_bus(str(path), repository=None, state=tmp_path / "host", clock=clock), clock)
    prefix = names.BRANCH_PREFIX  # git itself refuses such moves of branches only
    host.bus.create(bus_record(clock, prefix=prefix))
    assert host.bus.identity().renewals == renewals
    assert git("for-each-ref", names.probe_ref(prefix), cwd=path) == ""
    _, held_claim = started(host)
    held_claim = renewed(host, held_claim, 4)
    end = following(held_claim, clock, state="terminal", phase=None, reason="passed", exit_code=0)
    assert len(host.bus.publish(held_claim, end).chain) == length


def test_a_bus_of_an_older_protocol_is_refused_by_name(clock: FakeClock) -> None:
    from bridge.bus.content.commits import file_tree
    from bridge.system.gitobjects import commit

    data = bus_record(clock).canonical().replace(b'"schema_version":2', b'"schema_version":1')
    top, objects = file_tree({b"bus.json": data})
    head = commit(top.oid, (), 1, "bus")
    remote = MemoryRemote(
        {"refs/kakeya/bus": head.oid}, {git_object.oid: git_object for git_object in (*objects, head)}
    )
    with pytest.raises(BusError, match="protocol 1, this version 2") as caught:
        MemoryBus(remote, clock=clock).identity()
    assert "--create-bus" in caught.value.remedy
