"""A runner whose state is gone, restored or copied comes to the same as one with its own."""

from __future__ import annotations

import shutil

import pytest

from bridge.client.evidence.succession import compare_results
from bridge.errors import RequestRejectedError
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.connection.link import link_to
from bridge.runner.service.read_back import ReadBack
from bridge.runner.state.attestations import enrolled
from bridge.runner.state.database import Fact
from bridge.runner.state.history import JournalStage
from bridge.trust import runner_key as keys
from bridge.trust.attestation import verify_attestation
from tests.fakes.memory_bus import MemoryBus


class Host:
    """A host whose runner signs, and whose state may be changed between two starts."""

    def __init__(self, w, identity) -> None:
        self.w, self.identity = w, identity
        keys.generate(identity, "mini")
        MemoryBus(w.remote, clock=w.clock).update(enrolled(w.requester.identity(), identity, sign=True))

    def start(self):
        """Return the runner of a fresh process, and its state, after it compared itself with the bus."""
        w = self.w
        w.process = w.new_process(identity=self.identity)
        link = link_to(MemoryBus(w.remote, clock=w.clock), w.clock, KnownKeys(self.identity, "mini"))
        ReadBack("mini", w.process.state, link, clock=w.clock, log=w.process.log).compare()
        self.runner = w.process.on(link)
        return self.runner, w.process.state

    def run(self, runner, count=1):
        refs = []
        for _ in range(count):
            refs.append(self.w.ask(profile="claim"))
            self.w.serve_once(runner)
        return refs

    def attested(self, ref):
        files = self.w.result(ref.id).files
        return verify_attestation(files, [key.public for key in keys.published(self.identity)])

    @property
    def folder(self):
        return self.w.process.folder.root


@pytest.fixture
def host(world, tmp_path):
    return Host(world(), tmp_path / "identity")


def lines(host):
    return [line for line in host.w.log_lines if "state was set back" in line]


def change(host, how, tmp_path):
    """Change the state folder of a runner that has ended; return what is undone later."""
    host.runner.announce_end()
    host.w.process.state.close()
    if how == "deleted":
        shutil.rmtree(host.folder)
    elif how == "file cut":
        path = host.folder / "state.sqlite"
        path.write_bytes(path.read_bytes()[:5000])
        path.with_name("state.sqlite-wal").unlink(missing_ok=True)
    else:
        shutil.rmtree(host.folder)
        shutil.copytree(tmp_path / "backup", host.folder)


@pytest.mark.parametrize("how", ["deleted", "file cut", "restored"])
def test_a_state_that_is_gone_or_old_comes_to_the_same(host, tmp_path, how):
    runner, state = host.start()
    first = host.run(runner)
    state.close()
    shutil.copytree(host.folder, tmp_path / "backup")
    runner, _ = host.start()
    before = [*first, *host.run(runner, 2)]
    assert lines(host) == []
    change(host, how, tmp_path)
    runner, state = host.start()
    assert len(lines(host)) == 1
    [after] = host.run(runner)

    links = [host.attested(ref).link for ref in (*before, after)]
    assert [link.sequence for link in links] == [1, 2, 3, 1]
    assert len({link.chain for link in links}) == 2
    whole, _ = compare_results([host.attested(ref) for ref in (*before, after)])
    assert whole
    attempt = host.w.record(after.id).attempt
    assert (attempt.number, attempt.earlier) == (4, tuple(ref.id for ref in before))
    assert attempt.history_since == state.database.fact(Fact.HISTORY_SINCE)
    for ref in before:
        request = host.w.request_of(ref)
        with pytest.raises(RequestRejectedError, match="a request runs once"):
            state.ledger.admit(request, request.canonical(), "e" * 40, "unsigned")
    assert len(host.w.executor.executed) == 4
    state.close()
    host.start()
    assert len(lines(host)) == 1  # said once: the next start finds what it needs


def test_the_first_start_of_a_runner_says_nothing_and_counts_from_the_beginning(host):
    runner, state = host.start()
    waiting = host.w.ask()  # also one that was there before the runner was
    host.w.serve_once(runner)
    assert lines(host) == []
    assert host.w.record(waiting.id).attempt.history_since is None
    assert state.database.fact(Fact.TAKES_SINCE) is None


def test_a_claim_that_was_not_started_runs_after_its_state_is_gone(host, monkeypatch):
    runner, state = host.start()
    ref = host.w.ask()
    monkeypatch.setattr(runner, "_start", lambda work: None)  # dies between claim and start
    runner.step()
    assert host.w.claim(ref.id).state == "claimed"
    state.close()
    host.folder.rename(host.folder.with_name("lost"))  # what still reads files for the run may go on in there
    runner, state = host.start()
    assert state.journal.of(ref.id).stage == JournalStage.CLAIMED
    host.w.serve_once(runner)
    assert host.w.claim(ref.id).state == "terminal"
    assert len(host.w.executor.executed) == 1


def test_what_bus_and_state_have_both_lost_is_not_run_again_but_named(host):
    runner, state = host.start()
    ref = host.w.ask()
    host.w.serve_once(runner)
    runner.announce_end()
    assert len(host.w.executor.executed) == 1
    for name in list(host.w.remote.refs):  # all but the record and what requesters sent
        if name.startswith("refs/kakeya/") and not name.endswith("/bus"):
            del host.w.remote.refs[name]
    host.w.remote.refs[ref.ref] = ref.oid  # and its branch set back to what was sent
    state.close()
    shutil.rmtree(host.folder)
    runner, _ = host.start()
    assert runner.step() == 0
    assert len(host.w.executor.executed) == 1
    named = "it was sent before this runner's state was lost, and the bus does not say what had run by then"
    assert any(named in line and f"kakeya-mac retry {ref.id}" in line for line in host.w.log_lines)
    later = host.w.ask()
    host.w.serve_once(runner)
    assert host.w.claim(later.id).state == "terminal"


def test_what_another_s_beacon_or_log_shows_as_begun_is_refused_by_name(host):
    runner, state = host.start()
    ref = host.w.ask()
    host.w.serve_once(runner)
    runner.announce_end()
    host.w.remote.refs[f"refs/kakeya/log/{ref.id}"] = host.w.remote.refs[f"refs/kakeya/claim/{ref.id}"]
    start = host.w.remote.refs.pop(f"refs/kakeya/start/{ref.id}")
    del host.w.remote.refs[f"refs/kakeya/claim/{ref.id}"]
    host.w.remote.refs[ref.ref] = ref.oid
    state.close()
    shutil.rmtree(host.folder)
    runner, _ = host.start()
    host.w.remote.refs[f"refs/kakeya/start/{ref.id}"] = start
    host.w.serve_once(runner)
    assert (host.w.claim(ref.id).state, len(host.w.executor.executed)) == ("started", 1)  # left to whoever began it
    for kind in ("claim", "start"):
        del host.w.remote.refs[f"refs/kakeya/{kind}/{ref.id}"]
    host.w.serve_once(runner)
    claim = host.w.claim(ref.id)
    assert (claim.reason, len(host.w.executor.executed)) == ("request_rejected", 1)
    assert f"this runner may have begun request {ref.id}" in claim.message


def test_a_beacon_newer_than_the_state_shows_that_it_is_older(host, tmp_path):
    runner, state = host.start()
    runner.step()
    state.close()
    shutil.copytree(host.folder, tmp_path / "backup")
    runner, _ = host.start()
    runner.step()
    runner.announce_end()
    change(host, "restored", tmp_path)
    host.start()
    [line] = lines(host)
    assert "of this runner, and its state knows of" in line
