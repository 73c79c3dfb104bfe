"""The journal is durable, chained, and survives a crash in the middle of a line."""

from __future__ import annotations

import datetime as dt

import pytest

from bridge.errors import JournalError
from bridge.runner.state.attempts import Attempts
from bridge.runner.state.history import JournalStage
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


def test_the_file_is_the_owners_alone(path, clock):
    write(path, clock)
    assert path.stat().st_mode & 0o077 == 0


def test_a_torn_last_line_is_cut_off(path, clock):
    write(path, clock)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq":4,"prev')
    assert [one.id for one in Journal(path, clock).histories()] == [ONE]
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
