"""What a host's owner sees: from a journal of many runs, and in the files that a running runner keeps."""

from __future__ import annotations

import re
import stat

from bridge.errors import RemoteError
from bridge.records.run import HostRecord
from bridge.runner.maintenance.owner_status import LAST_COUNT, owner_status, status_lines
from bridge.runner.state.journal import Journal
from bridge.runner.state.waiting import read_queue
from tests.unit.bridge.runner.test_leases import HandClock

POLICY = 'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 0\n'
SAMPLE = re.compile(r'^kakeya_[a-z_]+\{runner="mini"(,reason="[a-z_]+")?\} -?[0-9]+$')


def test_the_last_twenty_runs_have_requester_preset_minutes_and_end(world):
    w = world(policy_text=POLICY)
    for _ in range(2):
        w.ask()
    w.serve_once()
    w.serve_once()
    folder = w.process.folder
    status = owner_status(folder, host(), w.clock, alive=False)
    assert (status.state, status.running) == ("not running", ())
    assert [(run.preset, run.requester, run.reason) for run in status.last] == [
        ("mlx-env-probe", "unsigned", "gate_rejected")
    ] * 2
    lines = list(status_lines(status))
    assert lines[0].startswith("runner    not running; cuda:0 NVIDIA H100; ")
    assert lines[1:3] == ["now       nothing runs", "queue     nothing waits"]
    assert len(lines) == 5


def test_a_long_journal_is_shown_newest_first_with_the_minutes_each_ran(tmp_path, world):
    clock = HandClock()
    process = world(policy_text=POLICY).process
    folder, journal = process.folder, Journal(process.state.database, clock)
    for number in range(25):
        run_id = f"01kakeya0000000000000000{number:02d}"
        journal.append("claimed", run_id, "1" * 40, principal=f"dev{number}", preset="k3-x")
        if number != 24:
            journal.append("started", run_id, "1" * 40)
            advance(clock, 90.0)
            journal.append("exited", run_id)
        journal.append("result_built", run_id, "1" * 40, ref="refs/x", reason="passed" if number < 24 else "expired")
    last = owner_status(folder, host(), clock, alive=True).last
    assert len(last) == LAST_COUNT
    assert [(run.requester, run.minutes, run.reason) for run in last[:2]] == [
        ("dev24", 0.0, "expired"),
        ("dev23", 1.5, "passed"),
    ]


def test_the_files_for_the_owner_follow_the_queue(world, tmp_path):
    figures = tmp_path / "kakeya.prom"
    w = world(policy_text=f'{POLICY}metrics = "{figures}"\nonly_when = ["hours-00-00"]\n')
    refs = [w.ask() for _ in range(2)]
    w.serve_once()
    view = read_queue(w.process.folder.queue)
    assert [request.id for request in view.requests] == sorted(ref.id for ref in refs)
    assert all("hours-00-00 does not hold now" in request.why for request in view.requests)
    assert stat.S_IMODE(figures.stat().st_mode) == 0o644
    text = figures.read_text()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.match(line) for line in samples)
    assert 'kakeya_runs_waiting{runner="mini"} 2' in samples
    declared = re.findall(r"^# TYPE (\S+) (?:gauge|counter)$", text, re.MULTILINE)
    assert len(declared) == len(set(declared)) == 6
    assert {line.partition("{")[0] for line in samples} <= set(declared)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tmp_")] == []


def test_a_reason_of_several_lines_keeps_a_request_waiting_and_its_runner_going(world):
    w = world(policy_text=POLICY)
    ref, runner = w.ask(), w.runner()

    def refuse(operation):
        if operation == "push":
            raise RemoteError("the remote said:\n\x1b[31mno")

    w.faults.decide = refuse
    assert runner.step() == 1
    (waiting,) = read_queue(w.process.folder.queue).requests
    assert waiting.id == ref.id
    assert waiting.why.endswith("the remote said: [31mno")
    w.faults.decide = lambda operation: None
    w.serve_once(runner)
    assert w.claim(ref.id).state == "terminal"


def test_a_file_that_cannot_be_written_is_said_once_and_ends_nothing(world, tmp_path):
    (tmp_path / "file").write_text("")
    w = world(policy_text=f'{POLICY}metrics = "{tmp_path}/file/kakeya.prom"\n')
    ref = w.ask()
    runner = w.serve_once()
    w.serve_once(runner)
    assert w.claim(ref.id).state == "terminal"
    assert sum("cannot be written" in line for line in w.log_lines) == 1


def advance(clock, seconds):
    import datetime as dt

    clock.steady += seconds
    clock.wall += dt.timedelta(seconds=seconds)


def host():
    return HostRecord(
        name="h", os="Linux", os_version="1", machine="x86_64", cpu="c", cpu_count=1, memory_bytes=1,
        devices=("cuda:0 NVIDIA H100",), drivers={}, virtualised="none",
    )  # fmt: skip
