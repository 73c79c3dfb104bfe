"""A host that takes one ref a push: what goes along with a claim arrives on its own, and the next pushes go singly."""

from __future__ import annotations

from bridge.bus.refbus import RefBus
from bridge.bus.store.git import GitStore
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from tests.fakes.bus_actors import Actor, FakeClock, chunk
from tests.fakes.git_host import GitHost, only_below
from tests.fakes.git_servers import bare
from tests.fakes.memory_bus import bus_record


def test_log_sign_of_life_and_copy_arrive_where_a_push_may_move_one_ref_only(tmp_path):
    host, clock, path = GitHost(tmp_path), FakeClock(), bare(tmp_path / "bus.git")
    try:
        url = host.url(path)
        store = GitStore(Route(url, url, (), is_local=True), tmp_path / "state", pauses_s=(0.0, 0.0))
        runner = Actor(RefBus(store, clock=clock, pacer=Pacer(None, 60.0, clock)), clock)
        runner.bus.create(bus_record(clock))
        host.gates.append(only_below("refs/", deletes=True))
        ref = runner.submit().ref
        begun = runner.start(ref, runner.claim(ref))
        renewed = runner.renew(ref, begun, log=chunk(ref.id, 0, 0, b"working\n"), beacon=runner.beacon())
        assert [piece.data for piece in runner.bus.read_log(ref.id)] == [b"working\n"]
        assert [beacon.runner for _, beacon in runner.bus.read_beacons()] == ["mini"]
        pushes = [call.updates for call in host.calls if call.updates]
        assert sum(len(updates) > 1 for updates in pushes) == 1
        ended = runner.publish(ref, renewed)
        assert runner.bus.copy_result(ref, ended.claim.result_oid) == "copied"
        pushes = [call.updates for call in host.calls if call.updates]
        assert sum(len(updates) > 1 for updates in pushes) == 1  # it was tried once
    finally:
        host.close()
