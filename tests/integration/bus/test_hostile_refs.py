"""Every kind of hostile ref at once over real git: a request starts soon, clients work, each object is read once."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.refbus import RefBus
from bridge.bus.store.gather import WorkBudget
from bridge.cli.host.main import main
from bridge.errors import RemoteError
from bridge.presets.installed import registry
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import link_to
from bridge.runner.machine.machine import Machine
from bridge.runner.policy.file import read_policy
from bridge.runner.service.loop import Runner
from bridge.runner.state.folder import OpenState, StateFolder
from bridge.runner.state.log import new_log
from bridge.system.clock import SystemClock
from tests.fakes.asking import make_request, push
from tests.fakes.bus_actors import Actor
from tests.fakes.fake_executor import FakeExecutor
from tests.fakes.git_servers import HELPER, HttpServer, SshServer, bare, git
from tests.fakes.memory_bus import bus_record
from tests.support.hostile_refs import PREFIX, Stranger, leave_all, leave_for_folders
from tests.support.runner_world import FixedCode, Lines, probe

POLICY = b'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 0\n'
CLOCK = SystemClock()
POLLS_MAX, CALLS_MAX, KINDS_MIN = 3, 40, 40
STOP_S = 30.0  # half of what a git call over a network may make no progress
SERVED = ("ssh-v2", "ssh-v0", "http")
WITH_REMOTE = ("fetch", "push", "ls-remote")


class CountedGit:
    """A git on PATH that writes down how it is called."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "calls"
        self.log.touch()
        shim = folder / "bin" / "git"
        shim.parent.mkdir()
        self.hang = folder / "hang"
        shim.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$*" >> {self.log}\n'
            f'case "$*" in *fetch*) [ ! -e {self.hang} ] || exec sleep 1000;; esac\nexec {shutil.which("git")} "$@"\n'
        )
        shim.chmod(0o755)
        self.path = str(shim.parent)

    def take(self) -> Counter[str]:
        """Return the calls since the last time, by verb: of those with the remote, and of all others as `local`."""
        lines = self.log.read_text().splitlines()
        self.log.write_text("")
        calls: Counter[str] = Counter()
        for line in lines:
            verb = next((word for word in line.split() if word in WITH_REMOTE), "local")
            calls["list" if "^refs/*" in line else verb] += 1
        return calls


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedGit:
    made = CountedGit(tmp_path)
    monkeypatch.setenv("PATH", made.path, prepend=":")
    return made


@dataclass
class HostileRemote:
    """A remote with every kind of hostile ref, and how it is reached."""

    route: str
    clone: Path | None

    def open(self, state: Path) -> RefBus:
        return open_bus(self.route, repository=self.clone, state=state, clock=CLOCK)


@contextmanager
def reached(kind: str, folder: Path, path: Path) -> Iterator[HostileRemote]:
    """Serve a repository over a transport; over plain ssh the server speaks git's protocol v0."""
    if kind == "file":
        yield HostileRemote(str(path), None)
        return
    clone, served = folder / "clone", folder / "server"
    served.mkdir()
    server = HttpServer(served, path.parent) if kind == "http" else SshServer(served, protocol_v2=kind == "ssh-v2")
    git("init", "--quiet", str(clone))
    git("remote", "add", "origin", server.url(path), cwd=clone)
    if isinstance(server, SshServer):
        git("config", "core.sshCommand", server.command, cwd=clone)
    else:
        git("config", "credential.helper", HELPER, cwd=clone)
    try:
        yield HostileRemote("origin", clone)
    finally:
        server.close()


KINDS = ["file", *(pytest.param(kind, marks=[pytest.mark.slow, pytest.mark.servers]) for kind in SERVED)]


@pytest.fixture(scope="module", params=KINDS)
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileRemote]:
    """Return a remote that carries a bus and every kind of hostile ref."""
    folder = tmp_path_factory.mktemp("hostile")
    path = bare(folder / "remote.git")
    open_bus(str(path), repository=None, state=folder / "maker", clock=CLOCK).create(bus_record(CLOCK))
    assert len(leave_all(path, int(CLOCK.now().timestamp() * 1000), huge_bytes=5 << 18)) >= KINDS_MIN
    with reached(request.param, folder, path) as remote:
        yield remote


def runner_at(remote: HostileRemote, folder: Path, lines: list[str]) -> Runner:
    state = StateFolder(folder / "runner")
    state.create()
    bus = remote.open(folder / "bus")
    return Runner(
        OwnerRules(read_policy(POLICY), dict(registry())),
        Machine(FakeExecutor(CLOCK, probe), FixedCode(), "0"),
        OpenState.open(state, "mini", CLOCK),
        link_to(bus, CLOCK),
        clock=CLOCK,
        stopping=threading.Event(),
        log=new_log(Lines(lines)),
    )


def read_all(bus: RefBus, oids: set[str]) -> None:
    """Read what a runner reads of a listing."""
    snapshot = bus.snapshot()
    bus.read_beacons()
    bus.newest_claims(snapshot.claims, WorkBudget(20))
    fetched = bus.read_requests([ref for ref in snapshot.requests if ref.oid not in oids], WorkBudget(20))
    oids |= {*fetched.received, *fetched.rejected}


@pytest.mark.ci
def test_what_was_looked_at_is_not_fetched_again_also_after_a_restart(
    hostile: HostileRemote, tmp_path: Path, counted: CountedGit
) -> None:
    oids: set[str] = set()
    bus = hostile.open(tmp_path / "bus")
    for _ in range(3):
        read_all(bus, oids)
    counted.take()
    read_all(bus, oids)
    assert counted.take()["fetch"] == 0
    read_all(hostile.open(tmp_path / "bus"), set())
    # Only what is no object for ever is kept: what the remote has lost is asked for once more, and requests are.
    assert counted.take()["fetch"] <= 20


def test_no_kind_of_hostile_ref_holds_anybody_up(hostile: HostileRemote, tmp_path: Path, counted: CountedGit) -> None:
    client = hostile.open(tmp_path / "client")
    ref = push(client, make_request(client.identity().bus_id, "mlx-env-probe", now=CLOCK.now()))

    lines: list[str] = []
    counted.take()
    runner = runner_at(hostile, tmp_path / "host", lines)
    calls: Counter[str] = Counter()
    for _ in range(POLLS_MAX):
        runner.step()
        calls += counted.take()
        if client.view(ref.id).claim is not None:
            break
        counted.take()
    assert client.view(ref.id).claim is not None, (calls, lines)
    assert sum(calls[verb] for verb in ("list", *WITH_REMOTE)) <= CALLS_MAX, calls
    runner.stopping.set()
    runner.join()

    snapshot = client.snapshot()
    tips = client.newest_claims(snapshot.claims, WorkBudget(CALLS_MAX))
    assert tips[ref.id].claim.state == "terminal", lines
    assert [beacon.runner for _, beacon in client.read_beacons()] == ["mini"]
    assert client.view(ref.id).claim is not None


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["blob", "tree", "tag-of-blob", "huge-file", "missing-tree"])
def test_what_a_stranger_left_at_a_runner_s_own_refs_stops_neither_its_runs_nor_its_root(
    remote: Path, tmp_path: Path, kind: str
) -> None:
    stranger = Stranger(remote, huge_bytes=5 << 20)
    oid = stranger.contents("beacon.json")[kind]
    host = Actor(open_bus(str(remote), repository=None, state=tmp_path / "host", clock=CLOCK), CLOCK)
    stranger.ref(f"{PREFIX}runner/{host.name}", oid)
    stranger.ref(f"{PREFIX}root", oid)
    sent = host.submit().ref
    host.renew(sent, host.start(sent, host.claim(sent)), beacon=host.beacon(1))
    assert [beacon.sequence for _, beacon in host.bus.read_beacons()] == [1]
    assert host.bus.write_root({"1.root.json": b"{}"}, host.bus.root_tip)
    assert git("show", f"{PREFIX}root:1.root.json", cwd=remote) == "{}"


@pytest.mark.ci
def test_what_can_never_be_read_is_named_and_then_deleted_where_it_was_seen(
    hostile: HostileRemote, tmp_path: Path
) -> None:
    bus = hostile.open(tmp_path / "bus")
    good = {run_id for run_id, tip in bus.newest_claims(bus.snapshot().claims, WorkBudget(CALLS_MAX)).items()}
    named = list(bus.repair(dry_run=True))
    assert len(named) >= 3 * 12
    assert all(bad.why and not bad.gone for bad in named)
    assert {bad.ref for bad in bus.repair(dry_run=False) if bad.gone} == {bad.ref for bad in named}
    assert list(bus.repair(dry_run=True)) == []
    assert good <= set(bus.snapshot().claims)


@pytest.mark.ci
def test_refs_in_the_place_of_our_folders_are_deleted_where_they_were_seen_and_branches_only_named(
    remote: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = leave_for_folders(Stranger(remote))
    bus = open_bus(str(remote), repository=None, state=tmp_path / "bus", clock=CLOCK)
    named = {bad.ref: bad for bad in bus.repair(dry_run=True)}
    assert list(named) == left
    assert all(bad.why.startswith("in the way of refs/") and not bad.gone for bad in named.values())
    assert {ref for ref, bad in named.items() if bad.by_hand} == {ref for ref in left if ref.startswith("refs/heads/")}

    repairs = bus.repair(dry_run=False)
    first = next(repairs)
    assert first.gone
    Stranger(remote).ref(f"{PREFIX}claim", other := git("rev-parse", f"{PREFIX}bus", cwd=remote).strip())
    assert {bad.ref: bad.gone for bad in repairs} == {
        ref: ref in (f"{PREFIX}log", f"{PREFIX}runner") for ref in left[1:]
    }
    assert git("rev-parse", f"{PREFIX}claim", cwd=remote).strip() == other  # it moved after it was seen

    assert main(["bus", "repair", "--yes", "--bus", str(remote), "--state", str(tmp_path / "state")]) == 1
    output_lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in output_lines] == [
        f"deleted {PREFIX}claim",
        *(f"left {ref}" for ref in left[-2:]),
    ]
    for line in output_lines[1:]:
        by_hand = line.partition("; next: if nobody needs that branch: ")[2]
        subprocess.run(by_hand, shell=True, cwd=tmp_path / "bus" / "control.git", check=True, capture_output=True)
    assert list(bus.repair(dry_run=True)) == []


@pytest.mark.ci
def test_a_listing_that_hangs_is_given_up_when_the_program_is_asked_to_end(
    remote: Path, tmp_path: Path, counted: CountedGit
) -> None:
    bus = open_bus(str(remote), repository=None, state=tmp_path / "bus", clock=CLOCK)
    bus.identity()
    beside, stopping = bus.beside(), threading.Event()
    bus.stop_when(stopping.is_set)
    counted.hang.touch()
    threading.Timer(0.5, stopping.set).start()
    began_s = CLOCK.steady_s()
    with pytest.raises(RemoteError):
        bus.snapshot()
    assert CLOCK.steady_s() - began_s < STOP_S
    counted.hang.unlink()
    assert beside.snapshot().claims == {}  # what a run still sends is not given up


def test_what_a_run_sends_arrives_with_its_sign_of_life_when_the_program_is_asked_to_end(
    remote: Path, tmp_path: Path
) -> None:
    host = Actor(open_bus(str(remote), repository=None, state=tmp_path / "host", clock=CLOCK), CLOCK)
    sent = host.submit().ref
    held_claim = host.claim(sent)
    run = Actor(host.bus.beside(), CLOCK)
    host.bus.stop_when(lambda: True)
    run.renew(sent, held_claim, beacon=run.beacon(1))  # the first, which asks the remote what is there already
    assert [beacon.sequence for _, beacon in run.bus.read_beacons()] == [1]
    with pytest.raises(RemoteError):
        host.bus.snapshot()


def test_runs_and_the_program_beside_them_send_signs_of_life_in_one_chain(remote: Path, tmp_path: Path) -> None:
    host = Actor(open_bus(str(remote), repository=None, state=tmp_path / "host", clock=CLOCK), CLOCK)
    sent = host.submit().ref
    run = Actor(host.bus.beside(), CLOCK)
    held_claim = run.claim(sent)
    host.bus.beacon(host.beacon(1))
    run.renew(sent, held_claim, beacon=run.beacon(2))
    host.bus.beacon(host.beacon(3))
    assert [beacon.sequence for _, beacon in host.bus.read_beacons()] == [3]
    assert git("rev-list", "--count", f"{PREFIX}runner/mini", cwd=remote).strip() == "3"
