"""Six places a bus can live, reached through the production interface.

Every test runs in memory and over the owner's own bus. Over the ways to another machine's repository a quick run takes
the tests in `TRANSPORT`; all the others are slow there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridge.bus import open_bus
from bridge.bus.open.embedded import ensure_embedded
from bridge.bus.refbus import RefBus
from bridge.bus.store.git import GitStore
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import resolve
from bridge.bus.store.user_clone import read_clone
from bridge.limits import PUSHES_PER_MINUTE_HOSTED
from tests.fakes import git_servers
from tests.fakes.bus_actors import Actor, FakeClock
from tests.fakes.git_servers import HELPER, HttpServer, SshServer, bare, git
from tests.fakes.memory_bus import MemoryBus, MemoryRemote, bus_record
from tests.fakes.split_store import SplitStore

PLACES = ("memory", "embedded", "file", "ssh", "http", "exec")
SERVED = ("ssh", "http", "exec")
EVERYWHERE = ("memory", "embedded")
TRANSPORT = {
    "test_says_which_bus_it_is_and_is_made_only_once": "creates refs, and is refused a second time",
    "test_a_request_arrives_with_the_bytes_that_were_sent": "uploads a branch and fetches it",
    "test_a_request_branch_is_never_overwritten": "the remote refuses a push",
    "test_a_ref_where_a_folder_belongs_is_named_with_what_deletes_it": "the remote says why it refuses a push",
    "test_a_request_that_was_withdrawn_is_rejected": "fetches a commit the remote does not have",
    "test_gc_deletes_branch_log_and_start_of_old_runs_only": "deletes refs",
    "test_an_owner_drops_refs_and_every_result_stays": "fetches by id what no ref leads to directly",
    "test_a_claim_has_one_winner": "compares and swaps at the remote",
    "test_a_race_of_claimers_has_one_winner_each_time": "pushes at the same time over several connections",
    "test_a_claim_put_back_before_another_begins_keeps_that_one_from_it": "moves two refs together, or none",
    "test_repeating_a_claim_after_a_lost_answer_is_no_second_claim": "pushes what is there already",
    "test_a_foreign_thing_at_a_claim_ref_is_named_and_blocks_nobody_else": "fetches what is no claim",
    "test_one_push_carries_lease_log_and_beacon": "several refs in one push",
    "test_a_log_or_beacon_somebody_else_moved_does_not_stop_the_run": "some refs of a push are refused",
    "test_a_log_is_read_in_order_and_without_gaps": "fetches what a ref gained since the last fetch",
    "test_publishing_shows_the_result_and_the_copy_reaches_the_branch": "uploads and fetches a tree of files",
    "test_a_branch_that_went_elsewhere_keeps_its_result_under_the_claim": "a push meets a ref that moved or is gone",
    "test_what_is_no_result_is_an_integrity_error": "fetches an object the remote does not have",
}
"""Tests whose promise depends on the way to the repository, each with what it does there."""
DOOR = {
    "test_a_request_arrives_with_the_bytes_that_were_sent",
    "test_a_request_branch_is_never_overwritten",
    "test_a_request_that_was_withdrawn_is_rejected",
    "test_a_log_is_read_in_order_and_without_gaps",
    "test_publishing_shows_the_result_and_the_copy_reaches_the_branch",
    "test_what_is_no_result_is_an_integrity_error",
}
"""Those of `TRANSPORT` that a requester does: the forced command of a host is a door for nobody else."""
ROOT = Path(__file__).parents[3]


@dataclass
class Place:
    """One bus, as actors and as an administrator see it."""

    kind: str
    clock: FakeClock
    open: Callable[[str | None], RefBus]
    refs: Callable[[], dict[str, str]]
    set_ref: Callable[[str, str | None], None]
    buses: list[RefBus] = field(default_factory=list)

    def bus(self, expect_id: str | None = None) -> RefBus:
        """Return a new actor with a state of its own."""
        made = self.open(expect_id)
        self.buses.append(made)
        return made


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, missing):
    """Start each server once, when the first test asks for it."""
    absent = git_servers.missing_programs()
    if absent:
        missing("servers", f"not installed: {', '.join(absent)}")
    root = tmp_path_factory.mktemp("served")
    started: dict[str, SshServer | HttpServer] = {}
    door = f"env PYTHONPATH={ROOT} {sys.executable} -m bridge.cli.host.main exec --no-start --state {root}/current"
    forced = {"ssh": git_servers.GIT_SHELL, "exec": door}

    def get(kind: str) -> SshServer | HttpServer:
        if kind not in started:
            folder = tmp_path_factory.mktemp(kind)
            started[kind] = HttpServer(folder, root) if kind == "http" else SshServer(folder, forced=forced[kind])
        return started[kind]

    get.root = root  # type: ignore[attr-defined]
    yield get
    for server in started.values():
        server.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" not in metafunc.fixturenames:
        return
    name = metafunc.definition.originalname
    # Over file and ssh the same git answers, started by git itself and by sshd: ssh takes all of them.
    quick = (*EVERYWHERE, *(("ssh", "http") if name in TRANSPORT else ()), *(("file", "exec") if name in DOOR else ()))
    marks = {
        kind: [pytest.mark.servers] * (kind in SERVED) + [pytest.mark.slow] * (kind not in quick) for kind in PLACES
    }
    metafunc.parametrize("place", [pytest.param(kind, marks=marks[kind]) for kind in PLACES], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A bus that has been created, over each transport."""
    return make_place(request.param, tmp_path, request)


def make_place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    clock = FakeClock()
    if kind == "memory":
        remote = MemoryBus(clock=clock).remote
        return Place(
            kind,
            clock,
            lambda expect: MemoryBus(remote, clock=clock, expect_id=expect),
            lambda: dict(remote.refs),
            _setter(remote),
        )
    if kind == "embedded":
        path = ensure_embedded(tmp_path / "data", clock)
        return _git_place(kind, clock, tmp_path, path, str(path), None, create=False)
    if kind == "file":
        path = bare(tmp_path / "remote.git")
        return _git_place(kind, clock, tmp_path, path, f"file://{path}", None)
    servers = request.getfixturevalue("servers")
    server = servers(kind)
    if kind == "exec":
        return _exec_place(clock, tmp_path, servers)
    path = bare(servers.root / f"{request.node.name.replace('/', '-')[:80]}-{id(clock)}.git")
    clone = tmp_path / "clone"
    git("init", "--quiet", str(clone))
    git("remote", "add", "origin", server.url(path), cwd=clone)
    if kind == "ssh":
        git("config", "core.sshCommand", server.command, cwd=clone)
    else:
        git("config", "credential.helper", HELPER, cwd=clone)
    return _git_place(kind, clock, tmp_path, path, "origin", clone)


def _git_place(
    kind: str, clock: FakeClock, tmp_path: Path, path: Path, route: str, clone: Path | None, *, create: bool = True
) -> Place:
    count = iter(range(1000))

    def open_one(expect: str | None) -> RefBus:
        state = tmp_path / "states" / str(next(count))
        return open_bus(route, repository=clone, state=state, clock=clock, expect_id=expect)

    def refs() -> dict[str, str]:
        lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=path).splitlines()
        return dict(line.split(" ") for line in lines)

    def set_ref(ref: str, oid: str | None) -> None:
        git("update-ref", *(["-d", ref] if oid is None else [ref, oid]), cwd=path)

    if create:
        open_one(None).create(bus_record(clock))
    return Place(kind, clock, open_one, refs, set_ref)


def _exec_place(clock: FakeClock, tmp_path: Path, servers: Callable[[str], SshServer]) -> Place:
    """Return the bus of a host's ssh requesters: they reach it by the forced command, the host by its path."""
    server = servers("exec")
    folder = tmp_path / "state" / "ssh"
    folder.mkdir(parents=True)
    path = bare(folder / "bus.git")
    (folder / "made").touch()
    current = servers.root / "current"  # type: ignore[attr-defined]
    current.unlink(missing_ok=True)
    current.symlink_to(tmp_path / "state")
    clone = tmp_path / "clone"
    git("init", "--quiet", str(clone))
    git("config", "core.sshCommand", server.command, cwd=clone)
    url = f"{server.url(Path('/kakeya'))}"
    base = _git_place("exec", clock, tmp_path, path, url, clone, create=False)
    count = iter(range(1000))

    def open_one(expect: str | None) -> RefBus:
        state = tmp_path / "states" / str(next(count))
        state.mkdir(parents=True)
        store = SplitStore(
            GitStore(resolve(url, clone, state), state, read_clone(clone)),
            GitStore(resolve(str(path), None, state), state),
        )
        return RefBus(store, clock=clock, pacer=Pacer(None, PUSHES_PER_MINUTE_HOSTED, clock), expect_id=expect)

    open_one(None).create(bus_record(clock))
    return Place("exec", clock, open_one, base.refs, base.set_ref)


def _setter(remote: MemoryRemote) -> Callable[[str, str | None], None]:
    def set_ref(ref: str, oid: str | None) -> None:
        if oid is None:
            remote.refs.pop(ref, None)
        else:
            remote.refs[ref] = oid

    return set_ref


@pytest.fixture
def host(place: Place) -> Actor:
    return Actor(place.bus(), place.clock, "host-a")


@pytest.fixture
def other(place: Place) -> Actor:
    return Actor(place.bus(), place.clock, "host-b")


@pytest.fixture
def client(place: Place) -> Actor:
    return Actor(place.bus(), place.clock, "client")
