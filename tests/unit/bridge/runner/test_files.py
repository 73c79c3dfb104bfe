"""What is written durably is whole or not there, also where the disk takes a part of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.errors import JournalError
from bridge.runner.state.attempts import Attempts
from bridge.runner.state.audit import audit, keep_audit
from bridge.runner.state.database import StateDatabase
from bridge.runner.state.ledger import Ledger
from bridge.runner.state.log import new_log
from bridge.system.durable import append_whole, in_turn, write_atomically
from tests.drift import ROOT
from tests.fakes.asking import make_request
from tests.fakes.requester import StepClock

ONE, BUS = "1" * 40, "b" * 32


@contextlib.contextmanager
def full_after(size: int) -> Iterator[None]:
    """Let no file grow beyond a size: a write that reaches it takes a part, the next one nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def log_bytes(path: Path) -> int:
    """Return how long the write-ahead log of a database is, which is what its next event grows."""
    return path.with_name(f"{path.name}-wal").stat().st_size


def test_a_list_is_never_replaced_by_a_part_of_it(tmp_path):
    path = tmp_path / "revoked"
    write_atomically(path, b"alice\n")
    with full_after(9), pytest.raises(OSError, match="too large"):
        write_atomically(path, b"alice\nbob\ncarol\n")
    assert path.read_bytes() == b"alice\n"
    assert [file.name for file in tmp_path.iterdir()] == ["revoked"]


def test_a_line_that_was_cut_off_is_taken_away(tmp_path):
    fd = os.open(tmp_path / "lines", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    append_whole(fd, b"one\n")
    with full_after(6), pytest.raises(OSError, match="too large"):
        append_whole(fd, b"two\n")
    append_whole(fd, b"three\n")
    os.close(fd)
    assert (tmp_path / "lines").read_bytes() == b"one\nthree\n"


@pytest.mark.skipif(not hasattr(os, "O_PATH"), reason="no descriptor here that takes no lock")
def test_nobody_waits_for_a_lock_where_a_file_system_has_none(tmp_path):
    clock = StepClock()
    with in_turn(os.open(tmp_path, os.O_PATH), 30.0, clock):
        assert clock.now() == clock.begun


WITHOUT_LOCKS = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from bridge.bus.store.push_budget import Pacer
from bridge.errors import InfrastructureError
from bridge.system.clock import SystemClock
from bridge.system.durable import NameLock
from tests.integration.setup.protections import refuse
refuse(["flock"])
folder = Path(sys.argv[1])
pacer = Pacer(folder / "pushes.json", 1.0, SystemClock())
print(pacer.take_turn(), pacer.take_turn())
try:
    NameLock(folder / "lock").try_acquire()
except InfrastructureError as error:
    print(error.message)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="filters of system calls")
def test_where_a_file_system_has_no_locks_pushes_are_counted_and_a_runner_says_what_it_lacks(tmp_path):
    words = [sys.executable, "-c", WITHOUT_LOCKS.format(root=str(ROOT)), str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert ran.stderr == ""
    turns, refused = ran.stdout.splitlines()
    assert turns == "True False"
    assert refused.startswith(f"no lock can be taken on {tmp_path / 'lock'}: ")


def test_a_full_disk_costs_the_ledger_the_line_and_nothing_else(tmp_path):
    clock, path = StepClock(), tmp_path / "state.sqlite"
    ledger = Ledger(StateDatabase(path), clock)
    first, second = (make_request(BUS, "mlx-env-probe", now=clock.now()) for _ in range(2))
    ledger.admit(first, first.canonical(), ONE, "agent")
    with full_after(log_bytes(path) + 20), pytest.raises(JournalError):
        ledger.admit(second, second.canonical(), ONE, "agent")
    ledger.admit(second, second.canonical(), ONE, "agent")
    assert Ledger(StateDatabase(path), clock).count() == 2


def test_a_full_disk_costs_no_attempt_that_was_counted(tmp_path, clock):
    path, key = tmp_path / "state.sqlite", "a" * 64
    attempts = Attempts(StateDatabase(path))
    attempts.count(key, "01jd7zk3v8q4w2m6x9c5b7n1ta", clock.now())
    with full_after(log_bytes(path) + 20), pytest.raises(JournalError):
        attempts.count(key, "01jd7zk3v8q4w2m6x9c5b7n1tb", clock.now())
    attempts.count(key, "01jd7zk3v8q4w2m6x9c5b7n1tc", clock.now())
    assert Attempts(StateDatabase(path)).count(key, "01jd7zk3v8q4w2m6x9c5b7n1td", clock.now()).number == 3


def test_a_full_disk_leaves_no_part_of_an_audit_record_to_spoil_the_next(tmp_path, capsys):
    path, log = tmp_path / "audit", new_log(io.StringIO())
    end = keep_audit(log, str(path))
    audit(log, "root", None, text="first")
    with full_after(path.stat().st_size + 10):
        audit(log, "root", None, text="second")
    audit(log, "root", None, text="third")
    end()
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["first", "third"]
    assert capsys.readouterr().err.count("an audit record could not be written") == 1
