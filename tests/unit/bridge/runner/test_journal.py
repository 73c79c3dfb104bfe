"""The journal is durable, chained, and survives a crash in the middle of an event."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import get_args

import pytest

from bridge.errors import JournalError
from bridge.runner.state.attempts import Attempts
from bridge.runner.state.database import DamagedStateError, Fact, StateDatabase
from bridge.runner.state.folder import OpenState, StateFolder
from bridge.runner.state.history import Event, JournalStage
from bridge.runner.state.journal import Journal, read_lines, verify_journal
from tests.unit.bridge.runner.test_leases import HandClock

ONE, TWO = "0" * 26, "1" * 26
OID = "a" * 40
NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.sqlite"


def write(path, clock):
    database = StateDatabase(path)
    journal = Journal(database, clock)
    journal.append("fetched", ONE, OID, nonce="n")
    journal.append("claimed", ONE, OID)
    journal.append("prepared", ONE)
    journal.append("copied", TWO, OID)
    database.close()


def test_what_was_written_is_read_again_and_goes_on(path, clock):
    write(path, clock)
    again = Journal(StateDatabase(path), clock)
    assert [line.event for line in read_lines(path)] == ["fetched", "claimed", "prepared", "copied"]
    (history,) = again.histories()
    assert (history.id, history.stage) == (ONE, JournalStage.CLAIMED)
    again.append("fenced", ONE)
    assert again.histories() == ()
    assert verify_journal(path) == 5


def test_every_event_that_recovery_goes_by_is_waited_for_and_no_other(path, clock):
    database = StateDatabase(path)
    journal = Journal(database, clock)
    waited = {}
    for event in get_args(Event):
        before = journal.histories()
        journal.append(event, ONE, OID)
        with database.read() as rows:
            waited[event] = rows.execute("PRAGMA synchronous").fetchone() == (2,)
        assert waited[event] or journal.histories() == before
    assert {event for event, durable in waited.items() if not durable} == {"prepared", "judged"}
    assert [line.event for line in read_lines(path)] == [*get_args(Event)]


@pytest.mark.parametrize("local", [True, False])
def test_the_file_and_what_belongs_to_it_are_the_owners_alone(path, local):
    database = StateDatabase(path, local=local)
    database.note(Fact.BEACON, "7")
    modes = {file.name: file.stat().st_mode & 0o077 for file in path.parent.iterdir()}
    beside = ["-shm", "-wal"] if local else ["-journal"]
    assert modes == dict.fromkeys(["state.sqlite", *(f"state.sqlite{suffix}" for suffix in beside)], 0)
    assert database.fact(Fact.BEACON) == "7"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE journal SET event = 'started' WHERE seq = 1",
        "UPDATE journal SET object = NULL WHERE seq = 1",
        "UPDATE journal SET detail = '{}' WHERE seq = 0",
        "DELETE FROM journal WHERE seq = 1",
        "UPDATE journal SET seq = 9 WHERE seq = 1",
        "INSERT INTO journal SELECT 4, previous, run, event, object, time, detail, digest FROM journal WHERE seq = 3",
    ],
)
def test_any_change_of_a_past_event_is_found_and_the_file_is_moved_aside(tmp_path, clock, damage):
    folder = StateFolder(tmp_path)
    write(folder.database, clock)
    with closing(sqlite3.connect(folder.database)) as rows, rows:
        rows.execute(damage)
    with pytest.raises(JournalError, match="the chain does not hold"):
        verify_journal(folder.database)
    state = OpenState.open(folder, "mini", clock)
    assert "the chain does not hold" in state.lost
    assert "moved to" in state.lost
    assert state.journal.histories() == ()
    assert len(list(tmp_path.glob("state.sqlite.unreadable-*"))) >= 1


@pytest.mark.parametrize("damage", ["truncated", "other bytes", "half a page", "its log is lost"])
def test_a_file_that_a_power_cut_left_is_moved_aside_or_is_sound_and_older(tmp_path, clock, damage):
    folder = StateFolder(tmp_path / "state")
    folder.create()
    write(folder.database, clock)
    database = StateDatabase(folder.database)
    Journal(database, clock).append("started", ONE, OID)
    copied = StateFolder(tmp_path / "copied")
    shutil.copytree(folder.root, copied.root)  # as a machine that lost its power finds it
    file, log = copied.database, copied.root / "state.sqlite-wal"
    whole = file.read_bytes()
    if damage == "its log is lost":
        log.unlink()
    else:
        log.unlink()
        file.write_bytes(
            {"truncated": b"", "other bytes": b"x" * 5000, "half a page": whole[: len(whole) // 2]}[damage]
        )
    state = OpenState.open(copied, "mini", clock)
    stages = [history.stage for history in state.journal.histories()]
    if damage == "its log is lost":
        assert (state.lost, stages) == (None, [JournalStage.CLAIMED])
    else:
        assert stages == []
        assert state.lost is not None or damage == "truncated"


def test_an_absent_journal_is_an_error_of_its_own(path):
    with pytest.raises(JournalError, match="there is no state"):
        verify_journal(path)


def test_a_file_of_another_version_is_not_taken_for_a_damaged_one_of_this(path):
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("PRAGMA user_version = 7")
    with pytest.raises(DamagedStateError, match="schema 7, this program writes 2"):
        StateDatabase(path)


def test_a_copy_nobody_may_write_beside_is_read(tmp_path, path, clock):
    write(path, clock)
    copied = tmp_path / "copy"
    copied.mkdir()
    shutil.copy(path, copied / "state.sqlite")
    copied.chmod(0o500)
    try:
        assert verify_journal(copied / "state.sqlite") == 4
    finally:
        copied.chmod(0o700)


def test_a_journal_keeps_a_bounded_number_of_events_and_forgets_nothing_that_goes_on(path, clock):
    database = StateDatabase(path)
    journal = Journal(database, clock, events_max=100)
    chains = []
    for number in range(200):
        run_id = f"{number:026}"[:-1] + "9"
        journal.append("claimed", run_id, OID, principal="bo")
        journal.append("result_built", run_id, OID, sequence=number + 1, attestation="d" * 64)
        journal.append("copied", run_id, OID)
        if number == 150:
            journal.append("fetched", ONE, OID, nonce="n")
            journal.append("claimed", ONE, OID, principal="ada")
        chains.append(journal.attested.chain)
    journal.append("started", ONE, OID)
    database.close()
    assert verify_journal(path) <= 3 * 49 + 3 + 10

    again = Journal(StateDatabase(path), clock, events_max=100)
    (history,) = again.histories()
    assert (history.id, history.stage, history.nonces) == (ONE, JournalStage.RUNNING, frozenset({"n"}))
    assert (again.attested.chain, again.attested.sequence) == (chains[0], 200)
    since = clock.now() - dt.timedelta(hours=1)
    assert again.claims_since(since, "ada") == 1
    again.append("fenced", ONE)
    again.append("copied", TWO, OID)
    assert Journal(StateDatabase(path), clock).histories() == ()
    for number in range(120):
        again.append("copied", f"{number:026}", OID)
    assert verify_journal(path) <= 110


def test_what_was_claimed_under_a_clock_that_was_days_ahead_uses_up_no_share_until_then(path):
    clock = HandClock()
    journal = Journal(StateDatabase(path), clock)
    clock.wall += dt.timedelta(days=3)
    journal.append("claimed", ONE, OID, principal="ada")
    clock.wall -= dt.timedelta(days=3)
    journal.append("claimed", TWO, OID, principal="ada")
    since = clock.now() - dt.timedelta(hours=1)
    for each in (journal, Journal(StateDatabase(path), clock)):
        assert each.claims_since(since, "ada") == 1
        assert each.claimants_since(since) == {"ada": (1, clock.now())}
    clock.wall -= dt.timedelta(minutes=5)  # as a clock that is set right by a little
    assert journal.claims_since(since, "ada") == 1


def test_an_attempt_counts_once_and_for_good(path):
    key, other = "a" * 64, "b" * 64
    assert Attempts(StateDatabase(path)).count(key, ONE, NOW).number == 1
    attempts = Attempts(StateDatabase(path))
    assert attempts.count(key, ONE, NOW).number == 1
    assert attempts.count(other, TWO, NOW).number == 1
    second = attempts.count(key, TWO, NOW)
    assert (second.number, second.earlier) == (2, (ONE,))


CLOSED_UNDER_WRITERS = '''
import sys, threading
from pathlib import Path
from bridge.errors import JournalError
from bridge.runner.state.database import StateDatabase

LONG = """WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000)
SELECT sum(n) FROM numbers"""
refusals = []
for attempt in range(20):
    state = StateDatabase(Path(sys.argv[1]) / f"{attempt}.sqlite", local=True)
    writing = threading.Event()

    def write():
        try:
            while True:
                with state.write(durable=False) as rows:
                    writing.set()
                    rows.execute(LONG).fetchall()
        except JournalError as error:
            refusals.append(error)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    writing.wait()
    state.close()
    for writer in writers:
        writer.join()
print(len(refusals))
'''


def test_a_file_that_is_closed_under_its_writers_refuses_them_and_the_process_lives(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CLOSED_UNDER_WRITERS, str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stdout) == (0, "80\n"), done.stderr[-2000:]
