"""One object for a run: the same answers from the bus while it goes on, and from the store once it has ended."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from bridge.client.clone.config import discover
from bridge.client.clone.store import Store
from bridge.client.run.run import Run, find_stored
from bridge.errors import IntegrityError, PendingError
from bridge.run.state import RunState
from tests.fakes.memory_bus import MemoryBus
from tests.fakes.requester import Requester
from tests.fakes.scripted_host import ScriptedHost


@pytest.fixture
def requester(tmp_path):
    return Requester(tmp_path)


@pytest.fixture
def host(requester):
    host = ScriptedHost(requester.bus, requester.clock)
    host.beat()
    requester.pin(host.sign())
    return host


@pytest.fixture
def notices():
    return []


@pytest.fixture
def run(requester, host, notices):
    run_id = requester.run("run", "mlx-env-probe").out.strip()
    session = requester.open(settings_of(requester), requester.clock)
    return Run(run_id, session.settings, session, os.environ, lambda *words: notices.append(words))


def settings_of(requester):
    return discover(requester.folder, requester.surroundings(None, None).environment)


def test_a_queued_run_has_a_request_a_reason_to_wait_and_no_result(run):
    status = run.status()
    assert (status.state, status.reason, status.exit_code) == (RunState.QUEUED, "pending", 8)
    assert run.request.preset == "mlx-env-probe"
    assert run.waiting_text() == "mini is idle"
    assert run.logs() == []
    with pytest.raises(PendingError, match="has no result yet: queued"):
        run.result()


def test_following_it_tells_every_state_and_the_status_after_it_how_the_wait_ended(run, requester, host):
    host.claim(run.id)
    host.start(run.id)
    requester.clock.plan(1, lambda: host.judge(run.id))
    requester.clock.plan(2, lambda: host.finish(run.id))
    states = [progress.state for progress in run.follow() if progress.kind == "state"]
    assert states == [RunState.CLAIMED, RunState.RUNNING, RunState.JUDGING, RunState.DONE]
    assert (run.status().reason, run.status().exit_code) == ("passed", 0)


def test_a_wait_that_ends_first_leaves_it_pending(run):
    assert [progress.end for progress in run.follow(timeout_s=1.0)][-1] == "pending"
    assert run.status().message == "still pending when the wait ended; nothing is lost"


def test_what_is_no_log_in_its_place_is_said_once_and_does_not_end_the_wait(run, requester, host, notices):
    host.claim(run.id)
    host.start(run.id)
    refs = requester.bus.remote.refs
    refs[f"refs/kakeya/log/{run.id}"] = refs[f"refs/kakeya/claim/{run.id}"]
    assert run.logs() == []
    assert "holds no head.json" in notices[-1][1]
    requester.clock.plan(2, lambda: host.finish(run.id))
    updates = list(run.follow(log="lines"))
    assert (updates[-1].end, updates[-1].state) == ("terminal", RunState.DONE)
    (trouble,) = [progress.lines for progress in updates if progress.kind == "trouble"]
    assert trouble[0].endswith("holds no head.json; not shown")


def test_its_log_is_read_live_and_then_from_the_result(run, host):
    host.claim(run.id)
    host.log(run.id, b"one\ntw")
    host.log(run.id, b"o\n", final=True)
    assert run.logs() == ["one", "two"]
    host.finish(run.id)
    assert run.logs() == ["one", "two"]
    assert run.logs(after=4) == ["two"]


def test_its_result_is_verified_stored_and_found_without_a_bus(run, requester, host, notices):
    host.claim(run.id)
    host.finish(run.id)
    assert run.result().verdict.decision == "valid"
    stored = find_stored(settings_of(requester), run.short, os.environ, lambda *words: notices.append(words))
    assert stored.session is None
    assert stored.result().id == run.id
    assert stored.bus_part().id == run.bus_part().id
    assert stored.status().exit_code == run.status().exit_code


class OvertakenStore(Store):
    """That of a command which another one of its clone overtakes when it has found no result."""

    other: Callable[[], object]

    def has_result(self, run_id: str) -> bool:
        is_stored = super().has_result(run_id)
        self.other()
        return is_stored


def test_a_result_that_two_commands_fetch_at_once_is_that_of_the_first(run, requester, host):
    """The first may be reading it already: a path that it has printed stays."""
    host.claim(run.id)
    host.finish(run.id)
    store = OvertakenStore(run.settings.state_dir)
    written: list[int] = []

    def other() -> None:
        if not written:
            assert requester.run("fetch", run.id).code == 0
            written.append(os.open(store.folder(run.id), os.O_RDONLY))  # keeps its number from being given again

    store.other = other
    status = Run(run.id, run.settings, replace(run.session, store=store), os.environ, print).status()
    (first,) = written
    try:
        assert os.path.samestat(os.fstat(first), status.folder.stat())
    finally:
        os.close(first)


def again(run: Run) -> Run:
    """Return the run as the next command sees it."""
    return Run(run.id, run.settings, run.session, os.environ, print)


def test_a_result_that_was_changed_here_is_fetched_again(run, host):
    host.claim(run.id)
    host.finish(run.id)
    folder = run.status().folder
    was = (folder / "verdict.json").read_bytes()
    (folder / "verdict.json").write_bytes(b"{}")
    assert again(run).status().folder == folder
    assert (folder / "verdict.json").read_bytes() == was


def test_a_result_that_was_changed_here_stays_until_its_original_takes_its_place(run, requester, host):
    host.claim(run.id)
    host.finish(run.id)
    note = run.status().folder / "note.txt"
    note.write_text("mine")
    assert again(run).status(fetch=False).terminal
    assert note.exists()
    elsewhere = MemoryBus(clock=requester.clock, record=run.session.record)  # the bus forgot the run
    forgotten = Run(run.id, run.settings, replace(run.session, bus=elsewhere), os.environ, print)
    with pytest.raises(IntegrityError, match="since it was stored, and the bus has no original"):
        forgotten.status()
    assert note.read_text() == "mine"
    (note.parent / "link").symlink_to("/etc/passwd")
    assert again(run).status().folder == note.parent
    assert not note.exists()


def test_cancelling_asks_once_and_says_what_the_run_was_doing(run, requester, host):
    assert run.cancel().state is RunState.QUEUED
    assert run.cancel().state is RunState.QUEUED
    assert requester.bus.snapshot().cancels == {run.id}
    host.claim(run.id)
    host.finish(run.id, reason="cancelled", decision="rejected")
    assert run.cancel().terminal
    assert run.status().exit_code == 6
