"""The journal is durable, chained, and survives a crash in the middle of a line."""

from __future__ import annotations

import datetime as dt
import os
from typing import get_args

import pytest

from bridge.errors import JournalError
from bridge.runner.state.attempts import Attempts
from bridge.runner.state.history import Event, JournalStage
from bridge.runner.state.journal import Journal, read_lines, verify_journal

ONE, TWO = "0" * 26, "1" * 26
OID = "a" * 40
NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def write(path, clock):
    journal = Journal(path, clock)
    journal.append("fetched", ONE, OID, nonce="n")
    journal.append("claimed", ONE, OID)
    journal.append("prepared", ONE)
    journal.append("copied", TWO, OID)
    journal.close()


def test_what_was_written_is_read_again_and_goes_on(path, clock):
    write(path, clock)
    again = Journal(path, clock)
    assert [line.event for line in read_lines(path)] == ["fetched", "claimed", "prepared", "copied"]
    (history,) = again.histories()
    assert (history.id, history.stage) == (ONE, JournalStage.CLAIMED)
    again.append("fenced", ONE)
    assert again.histories() == ()
    assert verify_journal(path) == 5


def test_every_line_that_recovery_goes_by_is_waited_for_and_no_other(path, clock, monkeypatch):
    synced, fsync = [], os.fsync
    journal = Journal(path, clock)
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(path.read_bytes().count(b"\n")) or fsync(fd))
    for event in get_args(Event):
        before = journal.histories()
        synced.clear()
        journal.append(event, ONE, OID)
        informative = event in {"prepared", "judged"}
        assert synced == ([] if informative else [path.read_bytes().count(b"\n")]), event
        assert not informative or journal.histories() == before
    assert [line.event for line in read_lines(path)] == [*get_args(Event)]


def test_the_file_is_the_owners_alone(path, clock):
    write(path, clock)
    assert path.stat().st_mode & 0o077 == 0


def test_a_torn_last_line_is_cut_off(path, clock):
    write(path, clock)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":4,"prev')
    assert [history.id for history in Journal(path, clock).histories()] == [ONE]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", ["alter", "remove", "repeat", "swap", "insert"])
def test_any_change_of_a_past_line_is_found(path, clock, damage):
    write(path, clock)
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "alter":
        lines[1] = lines[1].replace(b"claimed", b"started")
    elif damage == "remove":
        del lines[1]
    elif damage == "repeat":
        lines.insert(1, lines[1])
    elif damage == "swap":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        lines.insert(2, b"{}\n")
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match="line"):
        verify_journal(path)
    with pytest.raises(JournalError):
        Journal(path, clock)


def test_an_absent_journal_is_an_error_of_its_own(path):
    with pytest.raises(JournalError, match="no journal"):
        verify_journal(path)


def small(path, clock):
    return Journal(path, clock, file_max_bytes=4000)


def test_a_journal_goes_on_in_small_files_and_forgets_nothing_that_goes_on(path, clock):
    journal = small(path, clock)
    journal.append("fetched", ONE, OID, nonce="n")
    journal.append("claimed", ONE, OID, principal="ada")
    first = journal.first
    for number in range(200):
        run_id = f"{number:026}"[:-1] + "9"
        journal.append("claimed", run_id, OID, principal="bo")
        journal.append("result_built", run_id, OID, sequence=number + 1, attestation="d" * 64)
        journal.append("copied", run_id, OID)
    journal.append("started", ONE, OID)
    journal.close()
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 200_000
    assert len(list(path.parent.iterdir())) == 5

    again = small(path, clock)
    (history,) = again.histories()
    assert (history.id, history.stage, history.nonces) == (ONE, JournalStage.RUNNING, frozenset({"n"}))
    assert (again.first, again.attested.sequence) == (first, 200)
    since = clock.now() - dt.timedelta(hours=1)
    assert (again.claims_since(since, "ada"), again.claims_since(since, "bo")) == (1, 200)
    assert verify_journal(path) > 12
    again.append("fenced", ONE)
    again.close()
    assert small(path, clock).histories() == ()


def test_a_crash_between_two_files_leaves_one_journal(path, clock):
    write(path, clock)
    os.link(path, path.with_name("journal-000000000000.jsonl"))  # set aside, and the next not begun
    journal = Journal(path, clock, file_max_bytes=1)
    journal.append("started", ONE, OID)
    journal.close()
    assert len(list(path.parent.iterdir())) == 2
    assert verify_journal(path) == 6
    assert [history.id for history in Journal(path, clock).histories()] == [ONE]


def test_a_file_that_is_not_the_one_before_is_found(path, clock):
    journal = Journal(path, clock, file_max_bytes=1)
    for _ in range(3):
        journal.append("fetched", ONE, OID, nonce="n")
    journal.close()
    oldest = sorted(path.parent.glob("journal-*"))[1]
    oldest.unlink()
    with pytest.raises(JournalError, match="go on"):
        verify_journal(path)


def test_an_attempt_counts_once_and_for_good(tmp_path):
    file = tmp_path / "attempts.jsonl"
    key, other = "a" * 64, "b" * 64
    assert Attempts(file).count(key, ONE, NOW).number == 1
    attempts = Attempts(file)
    assert attempts.count(key, ONE, NOW).number == 1
    assert attempts.count(other, TWO, NOW).number == 1
    second = attempts.count(key, TWO, NOW)
    assert (second.number, second.earlier) == (2, (ONE,))
    file.write_bytes(file.read_bytes() + b'{"id":')
    assert Attempts(file).count(key, TWO, NOW).number == 2
