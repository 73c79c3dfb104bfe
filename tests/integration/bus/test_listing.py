"""What a listing asks of the remote: only what is wanted, however full the bus is, and whatever protocol it speaks."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.bus.refs import names
from bridge.bus.store.git import GitStore
from bridge.bus.store.interface import Listing
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from bridge.bus.views import ListingWindow
from bridge.errors import BusError, RemoteError, RemoteRefusedError
from bridge.ids import new_id
from bridge.presets.installed import registry
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import bare, git
from tests.fakes.memory_bus import bus_record

# Answers as a git of protocol v2 does, with one ref after the other.
ENDLESS = """import sys
from contextlib import suppress

def line(text):
    sys.stdout.buffer.write(b"%04x" % (len(text) + 4) + text)

for capability in (b"version 2", b"ls-refs", b"fetch", b"object-format=sha1"):
    line(capability + b"\\n")
sys.stdout.buffer.write(b"0000")
with suppress(BrokenPipeError):
    while True:
        line(b"1" * 40 + b" refs/" + b"x" * 60_000 + b"\\n")
"""


def store(remote: Path, state: Path, **config: str) -> GitStore:
    state.mkdir(parents=True, exist_ok=True)
    pairs = tuple((key.replace("__", "."), value) for key, value in config.items())
    return GitStore(Route(str(remote), "here", pairs, is_local=True), state)


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    path = bare(tmp_path / "remote.git")
    clock = FakeClock()
    bus = open_bus(str(path), repository=None, state=tmp_path / "maker", clock=clock)
    bus.create(bus_record(clock))
    Actor(bus, clock).submit()
    return path


def fill(remote: Path, count: int, kind: str) -> None:
    """Add refs the way a busy repository has them: packed."""
    (oid, *_) = git("for-each-ref", "--format=%(objectname)", "refs/heads", cwd=remote).split()
    lines = [f"{oid} {kind}{number:026d}" for number in range(count)]
    existing = git("for-each-ref", "--format=%(objectname) %(refname)", cwd=remote).splitlines()
    every = sorted([*lines, *existing], key=lambda line: line.split(" ")[1])
    (remote / "packed-refs").write_text("# pack-refs with: sorted\n" + "\n".join(every) + "\n")


def test_refs_outside_the_prefixes_are_not_even_sent(remote: Path, tmp_path: Path) -> None:
    lister = store(remote, tmp_path / "s")
    before = lister.list(["refs/kakeya/", "refs/heads/mac-bridge/"])
    fill(remote, 5000, "refs/tags/v")
    after = lister.list(["refs/kakeya/", "refs/heads/mac-bridge/"])
    assert after.refs == before.refs
    assert len(after.refs) == 2
    assert after.bytes_received == before.bytes_received > 0


def test_waiting_costs_the_same_on_a_bus_with_ten_thousand_requests(remote: Path, tmp_path: Path) -> None:
    clock = FakeClock()
    client = Actor(open_bus(str(remote), repository=None, state=tmp_path / "c", clock=clock), clock)
    sent = client.submit()
    lister = store(remote, tmp_path / "s")
    own = [names.claim_ref(names.DEFAULT_PREFIX, sent.ref.id), sent.ref.ref]
    before = lister.list(own)
    fill(remote, 10_000, "refs/heads/mac-bridge/mlx-env-probe-")
    assert lister.list(own) == before
    assert client.bus.view(sent.ref.id).request == sent.ref
    assert len(client.bus.snapshot().requests) == 10_002


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_every_protocol_version_gives_the_same_listing(remote: Path, tmp_path: Path, version: str) -> None:
    git(
        "tag",
        "-a",
        "-m",
        "t",
        "annotated",
        "refs/heads/" + git("for-each-ref", "--format=%(refname:short)", "refs/heads", cwd=remote),
        cwd=remote,
    )
    lister = store(remote, tmp_path / version, protocol__version=version)
    listing = lister.list(["refs/"])
    assert lister.list(["refs/"]) == listing
    expected = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=remote).splitlines()
    assert dict(line.split(" ") for line in expected) == listing.refs


def test_a_prefix_is_no_glob(remote: Path, tmp_path: Path) -> None:
    lister = store(remote, tmp_path / "s")
    assert set(lister.list(["refs/kakeya/bus"]).refs) == {"refs/kakeya/bus"}
    git("update-ref", "refs/kakeya/business", git("rev-parse", "refs/kakeya/bus", cwd=remote), cwd=remote)
    assert set(lister.list(["refs/kakeya/bus"]).refs) == {"refs/kakeya/bus", "refs/kakeya/business"}
    assert open_bus(str(remote), repository=None, state=tmp_path / "b", clock=FakeClock()).identity()


def test_a_repository_of_another_hash_is_named_as_one(tmp_path: Path) -> None:
    path = tmp_path / "sha256.git"
    git("init", "--quiet", "--bare", "--object-format=sha256", str(path))
    maker = open_bus(str(path), repository=None, state=tmp_path / "maker", clock=FakeClock())
    with pytest.raises(RemoteRefusedError, match="by SHA-256, a bus by SHA-1") as caught:
        maker.create(bus_record(FakeClock()))
    assert "--object-format=sha256" in (caught.value.remedy or "")


def test_a_repository_that_hides_the_refs_of_a_bus_is_told_how_to_show_them(tmp_path: Path) -> None:
    path = bare(tmp_path / "hiding.git")
    git("config", "uploadpack.hideRefs", "refs/kakeya", cwd=path)
    maker = open_bus(str(path), repository=None, state=tmp_path / "maker", clock=FakeClock())
    for _ in range(2):
        with pytest.raises(BusError, match=r"uploadpack\.hideRefs") as caught:
            maker.create(bus_record(FakeClock()))
        assert git("for-each-ref", cwd=path) == ""
    _, command = (caught.value.remedy or "").split(": git ")
    git(*shlex.split(command), cwd=path)
    maker.create(bus_record(FakeClock()))
    assert maker.identity().bus_id


def test_refs_without_end_are_given_up_at_a_bound_and_leave_no_file(tmp_path: Path) -> None:
    server = tmp_path / "ssh"
    server.write_text(f"#!{sys.executable}\n{ENDLESS}")
    server.chmod(0o755)
    config = (("core.sshCommand", str(server)), ("ssh.variant", "simple"))
    state = tmp_path / "s"
    state.mkdir()
    endless = GitStore(Route("ssh://host/bus", "ssh://host/bus", config, is_local=True), state)
    with pytest.raises(RemoteError, match="refs without end"):
        endless.list(["refs/"])
    assert list(state.glob("listing-*")) == []


def test_an_empty_remote_lists_nothing(tmp_path: Path) -> None:
    assert store(bare(tmp_path / "empty.git"), tmp_path / "s").list(["refs/"]).refs == {}


def runs_over_days(remote: Path, count: int, days: int, clock: FakeClock) -> None:
    """Add request branches and claims of runs that ended, spread evenly over the last days."""
    (oid, *_) = git("for-each-ref", "--format=%(objectname)", "refs/heads", cwd=remote).split()
    now_ms = int(clock.now().timestamp() * 1000)
    lines = git("for-each-ref", "--format=%(objectname) %(refname)", cwd=remote).splitlines()
    for number in range(count):
        run_id = new_id(now_ms - number * days * 86_400_000 // count, number.to_bytes(10, "big"))
        lines += [f"{oid} {names.claim_ref(names.DEFAULT_PREFIX, run_id)}"]
        lines += [f"{oid} refs/heads/mac-bridge/mlx-env-probe-{run_id}"]
    (remote / "packed-refs").write_text(
        "# pack-refs with: sorted\n" + "\n".join(sorted(set(lines), key=lambda line: line.split(" ")[1])) + "\n"
    )


def test_a_listing_of_the_last_days_costs_the_same_however_many_runs_ended_before(remote: Path, tmp_path: Path) -> None:
    clock = FakeClock()
    host = open_bus(str(remote), repository=None, state=tmp_path / "h", clock=clock)
    window = ListingWindow(int(clock.now().timestamp() * 1000), tuple(registry()))
    cost = {}
    for count in (300, 10_000):
        runs_over_days(remote, count, count // 10, clock)  # ten a day, for longer and longer
        snapshot = host.snapshot(window)
        cost[count] = snapshot.bytes_received
        assert 20 <= len(snapshot.claims) <= 30
        assert len(snapshot.claims) <= len(snapshot.requests) + 1
        assert snapshot.bytes_received <= 200 * len(snapshot.claims) + 20_000
    assert cost[10_000] <= 1.2 * cost[300]
    assert host.snapshot().bytes_received > 10 * cost[10_000]


def test_a_listing_of_the_last_minutes_shows_these_and_what_was_named(remote: Path, tmp_path: Path) -> None:
    clock = FakeClock()
    runs_over_days(remote, 2000, 2, clock)
    host = open_bus(str(remote), repository=None, state=tmp_path / "h", clock=clock)
    days = ListingWindow(int(clock.now().timestamp() * 1000), tuple(registry()))
    snapshot = host.snapshot(days)
    oldest = min(snapshot.requests, key=lambda ref: ref.id)
    sent = Actor(open_bus(str(remote), repository=None, state=tmp_path / "c", clock=clock), clock).submit()
    fresh = host.snapshot(dataclasses.replace(days, refs=(oldest.ref,), fresh=True))
    assert {oldest.id, sent.ref.id} <= {ref.id for ref in fresh.requests}
    assert oldest.id in fresh.claims
    assert fresh.bytes_received < snapshot.bytes_received / 20


def test_a_window_shows_a_known_run_of_any_age_and_what_was_asked_a_moment_ago(remote: Path, tmp_path: Path) -> None:
    clock = FakeClock()
    runs_over_days(remote, 200, 300, clock)
    host = open_bus(str(remote), repository=None, state=tmp_path / "h", clock=clock)
    oldest = min(host.snapshot().claims)
    sent = Actor(open_bus(str(remote), repository=None, state=tmp_path / "c", clock=clock), clock).submit()
    snapshot = host.snapshot(ListingWindow(int(clock.now().timestamp() * 1000), tuple(registry()), (oldest,)))
    assert oldest in snapshot.claims
    assert sent.ref.id in {ref.id for ref in snapshot.requests}


class RenewedMeanwhile(GitStore):
    """A store whose first listing is out of date once it is read: the listed claim was renewed."""

    def __init__(self, *args: object, renew: Callable[[], object], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._renew = [renew]

    def list(self, *args: object, **kwargs: object) -> Listing:
        listing = super().list(*args, **kwargs)  # type: ignore[arg-type]
        if any("/claim/" in ref for ref in listing.refs) and self._renew:
            self._renew.pop()()
        return listing


@pytest.mark.parametrize("protocol", ["0", "2"])
def test_a_run_whose_claim_is_renewed_between_listing_and_fetch_is_seen(
    remote: Path, tmp_path: Path, protocol: str
) -> None:
    clock = FakeClock()
    host = Actor(open_bus(str(remote), repository=None, state=tmp_path / "h", clock=clock), clock)
    ref = host.submit().ref
    held_claim = host.start(ref, host.claim(ref))
    first, second = (host.record(ref, "started", held_claim.claim.sequence + 1, beat=beat) for beat in (1, 2))
    held_claim = host.bus.advance(held_claim, first)
    (tmp_path / "c").mkdir()
    route = Route(str(remote), "here", (("protocol.version", protocol),), is_local=True)
    raced = RenewedMeanwhile(route, tmp_path / "c", renew=lambda: host.bus.advance(held_claim, second))
    client = RefBus(raced, clock=clock, pacer=Pacer(None, 60.0, clock))
    tip = client.view(ref.id).claim
    assert tip is not None
    assert tip.claim.beat == {"0": 2, "2": 1}[protocol]
