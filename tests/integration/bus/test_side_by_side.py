"""Commands of one clone side by side: each reads what it fetched, whatever the other fetches and deletes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from bridge.bus.content import commits
from bridge.bus.identity.root_ref import RootRef
from bridge.bus.refs.requests import Requests
from bridge.bus.store.git import GitStore
from bridge.bus.store.interface import RefUpdate
from bridge.bus.store.quarantine import Quarantine
from bridge.bus.store.route import Route
from bridge.limits import MIB
from bridge.system.gitobjects import DIRECTORY, REGULAR, GitObject, TreeEntry, blob, commit, tree
from tests.fakes.bus_actors import FakeClock
from tests.fakes.git_servers import bare

RUN = "01k9x3" + "0" * 20


class Overtaken(GitStore):
    """A command that another one of its clone overtakes whenever it has just fetched something."""

    other: Callable[[], object]

    def isolate(self, *words: Any, **named: Any) -> GitStore:
        """Return the store, once the other command has read the same and deleted its own."""
        store = super().isolate(*words, **named)
        self.other()
        return store


@pytest.fixture
def route(tmp_path: Path) -> Route:
    return Route(str(bare(tmp_path / "remote.git")), "here", (), is_local=True)


def opened(route: Route, tmp_path: Path, kind: type[GitStore] = GitStore, place: str = "clone") -> Any:
    (tmp_path / place).mkdir(exist_ok=True)
    return kind(route, tmp_path / place)


def test_a_root_is_read_whole_while_another_command_reads_it(route: Route, tmp_path: Path) -> None:
    owner = opened(route, tmp_path, place="owner")
    data = blob(b"{}")
    top = tree([TreeEntry(REGULAR, b"root.json", data.oid)])
    head = commit(top.oid, (), 0, "root")
    owner.write([data, top, head])
    owner.push([RefUpdate("refs/kakeya/root", head.oid, None)])
    overtaken = opened(route, tmp_path, Overtaken)
    overtaken.other = lambda: RootRef(opened(route, tmp_path)).files(head.oid)
    assert RootRef(overtaken).files(head.oid) == {"root.json": b"{}"}


def test_a_copied_result_is_found_while_another_command_looks_for_it(route: Route, tmp_path: Path) -> None:
    runner, request_oid = opened(route, tmp_path, place="runner"), "a" * 40
    result = tree([TreeEntry(REGULAR, b"run.json", blob(b"{}").oid)])
    built = commit(result.oid, (), 0, "result")
    folder = tree([TreeEntry(DIRECTORY, commits.RESULT_FOLDER, result.oid)])
    top = tree([TreeEntry(DIRECTORY, commits.FOLDER, folder.oid)])
    copied = commit(top.oid, (), 0, "copy")
    runner.write([blob(b"{}"), result, built, folder, top, copied])
    runner.push([RefUpdate("refs/heads/mac-bridge/x", copied.oid, None)])

    def delivery(store: GitStore) -> str | None:
        store.write([blob(b"{}"), result, built])
        return Requests(store, Quarantine(None, FakeClock())).delivery(RUN, request_oid, copied.oid, built.oid)

    overtaken = opened(route, tmp_path, Overtaken)
    overtaken.other = lambda: delivery(opened(route, tmp_path))
    assert delivery(overtaken) == "copied"


def test_what_others_drop_between_a_listing_and_a_look_is_in_nobodys_way(route: Route, tmp_path: Path) -> None:
    """Ten calls of `ls` at once each make and drop a store of their own: one in 200 met another's that had gone."""
    store = opened(route, tmp_path)
    store.isolate("first", [], max_bytes=MIB)
    gone = tmp_path / "clone" / "isolated" / "gone.git"
    gone.symlink_to(tmp_path / "dropped")  # listed, and not there when it is looked at
    assert store.isolate("second", [], max_bytes=MIB).route == "here"


def test_commands_that_fetch_into_one_store_at_once_wait_for_each_other(route: Route, tmp_path: Path) -> None:
    """As `status` of somebody else's run, twice at once, does: git refuses a lock that another holds."""
    runner = opened(route, tmp_path, place="runner")
    data = [blob(b"%d" % number) for number in range(100)]
    top = tree([TreeEntry(REGULAR, b"%03d" % number, obj.oid) for number, obj in enumerate(data)])
    tips = [commit(top.oid, (), number, "request") for number in range(8)]
    runner.write([*data, top, *tips])
    runner.push([RefUpdate(f"refs/heads/mac-bridge/{number}", tip.oid, None) for number, tip in enumerate(tips)])
    begin = Barrier(len(tips))

    def fetched(tip: GitObject) -> bytes:
        own = opened(route, tmp_path)
        begin.wait()
        with own.isolate(RUN, [tip.oid], max_bytes=MIB).reader() as reader:
            return reader.read(top.oid, "tree", MIB)

    with ThreadPoolExecutor(len(tips)) as threads:
        assert list(threads.map(fetched, tips)) == [top.data] * len(tips)
