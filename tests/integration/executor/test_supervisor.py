"""A run outlives whoever started it, its supervisor's death is an ending of its own, and nothing starts twice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

import bridge
from bridge.cli.host.main import main
from bridge.errors import SandboxUnavailableError
from bridge.executor.holder.attached import StartingRun
from bridge.executor.holder.folder import RunFolder, packed, take, unpacked
from bridge.executor.holder.server import supervisor_server
from bridge.executor.interface import Hooks
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs, living
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
SLOW = """
import os, sys, time
print("before", flush=True)
with open(os.environ["KAKEYA_OUT"] + "/report.json", "w") as file: file.write("{}")
open(sys.argv[1] + "/there", "w").close()
while not os.path.exists(sys.argv[1] + "/go-on"): time.sleep(0.02)
print("after", flush=True)
"""


@pytest.fixture(scope="module")
def executor():
    return LocalExecutor(SystemClock())


@pytest.fixture
def place(tmp_path):
    tmp_path.chmod(0o711)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    return shared


def quiet(log=None) -> Hooks:
    return Hooks(on_log=(lambda _: None) if log is None else log.extend, should_stop=lambda: None)


def spec_of(jobs: Jobs, place: Path, program: str = SLOW):
    argv = (sys.executable, "-I", "-S", "-c", program, str(place))
    return jobs.spec(argv=[argv], sandbox=SandboxSpec(mode="off", read_only=(str(place),)))


@contextlib.contextmanager
def begun(executor, tmp_path, place):
    """Start the slow program and yield its run once it is in the middle."""
    jobs = Jobs(executor, tmp_path)
    handle = tmp_path / "handle"
    with executor.start(spec_of(jobs, place), make_directory(tmp_path / "run"), handle) as starting:
        running = starting.go(quiet())
        until((place / "there").exists)
        yield handle, running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_a_signal_interrupted_says_which(executor, tmp_path, place, number):
    with begun(executor, tmp_path, place) as (handle, running):
        os.kill(RunFolder(handle).facts().pid, number)
        execution = running.wait()

    assert (execution.ok, execution.ending) == (True, "interrupted")
    assert execution.message == f"the run was interrupted: {number.name} came to its supervisor"


def test_the_folder_says_who_supervises_before_anything_runs(executor, tmp_path, place):
    with begun(executor, tmp_path, place) as (handle, running):
        facts = RunFolder(handle).facts()
        status = Path(f"/proc/{facts.pid}/status").read_text()
        (place / "go-on").touch()

    assert f"Pid:\t{facts.pid}" in status
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert running.wait().log == b"before\nafter\n"
    assert stat_mode(handle) == 0o700


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_killed_supervisor_is_an_ending_of_its_own_with_log_and_report(executor, tmp_path, place):
    with begun(executor, tmp_path, place) as (handle, running):
        until((handle / "log").read_bytes)  # a supervisor that dies takes what it has not read with it
        os.kill(RunFolder(handle).facts().pid, signal.SIGKILL)
        execution = running.wait()

    assert (execution.ok, execution.ending, execution.message) == (False, "killed", "its supervisor was killed")
    assert execution.log.startswith(b"before\n")
    assert execution.redactions is None, "nobody is left who counted them"
    assert execution.reports == {"report.json": b"{}"}
    until(lambda: not living(str(place)), why="a process outlived the supervisor")
    assert executor.recover(handle, quiet()).ending == "killed"


def test_what_cannot_be_read_again_is_no_result(executor, tmp_path, place):
    (place / "go-on").touch()
    with begun(executor, tmp_path, place) as (handle, running):
        assert running.wait().ending == "exited"
    for name in ("kept.json", "outputs.tar", "log"):
        whole = (handle / name).read_bytes()
        (handle / name).write_bytes(whole[:-1])
        assert executor.recover(handle, quiet()).ending == "killed"
        (handle / name).write_bytes(whole)
    assert executor.recover(handle, quiet()).ending == "exited"


def test_a_folder_runs_once_however_often_it_is_started(executor, tmp_path, place):
    (place / "go-on").touch()
    with begun(executor, tmp_path, place) as (handle, running):
        running.wait()
    (place / "there").unlink()

    assert main(["supervise", str(handle)]) == 1
    assert not (place / "there").exists()


def test_who_is_told_nothing_starts_nothing(executor, tmp_path, place):
    jobs = Jobs(executor, tmp_path)
    with executor.start(spec_of(jobs, place), make_directory(tmp_path / "run"), tmp_path / "handle"):
        pass
    until(lambda: not RunFolder(tmp_path / "handle").taken())

    assert not (place / "there").exists()
    assert RunFolder(tmp_path / "handle").facts() is None


def test_a_supervisor_that_was_given_up_and_is_late_takes_no_lock_of_the_next(executor, tmp_path, place):
    (place / "go-on").touch()
    jobs, handle = Jobs(executor, tmp_path), tmp_path / "handle"
    with executor.start(spec_of(jobs, place), make_directory(tmp_path / "run"), handle):
        until(RunFolder(handle).taken)  # its runner has gone, and nobody has told it yet
        with executor.start(spec_of(jobs, place), make_directory(tmp_path / "again"), handle) as starting:
            execution = starting.go(quiet()).wait()

    assert (execution.ending, execution.log) == ("exited", b"before\nafter\n")


def test_who_looks_whether_a_folder_is_taken_keeps_no_run_from_its_start(executor, tmp_path, place):
    """A look, of `kakeya-runner status` too, holds the lock for an instant, which a busy machine may make longer."""
    with begun(executor, tmp_path, place) as (handle, running):  # only to have a whole job file
        (place / "go-on").touch()
        running.wait()
    shutil.rmtree(tmp_path / "run")
    directory, folder = make_directory(tmp_path / "run"), RunFolder(tmp_path / "fresh")
    folder.write_job(RunFolder(handle).job())
    maker = supervisor_server(metadata.version("kakeya"))
    with folder.opened() as files, (folder.root / "lock").open("rb+") as looking:
        assert take(looking.fileno())
        starting = StartingRun(folder, maker.start(files, directory), SystemClock(), maker)
        time.sleep(0.05)
    execution = starting.go(quiet()).wait()

    assert (execution.ending, execution.log) == ("exited", b"before\nafter\n")


def test_a_refusal_in_the_supervisor_is_raised_here(executor, tmp_path):
    jobs = Jobs(executor, tmp_path)
    spec = jobs.spec("pass", sandbox=SandboxSpec(mode="off", uid=0))

    with pytest.raises(SandboxUnavailableError, match="never root"):
        jobs.execute(spec)


RUNNER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import make_directory
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs
from tests.integration.executor.test_supervisor import quiet, spec_of
executor, base = LocalExecutor(SystemClock()), Path({base!r})
spec = spec_of(Jobs(executor, base), Path({place!r}))
with executor.start(spec, make_directory(base / "run"), base / "handle") as starting:
    starting.go(quiet()).wait()
"""


def test_a_run_goes_on_when_its_runner_is_killed_and_is_followed_by_the_next(executor, tmp_path, place):
    program = RUNNER.format(root=str(ROOT), base=str(tmp_path), place=str(place))
    runner = subprocess.Popen([sys.executable, "-c", program])
    until((place / "there").exists)
    runner.kill()
    runner.wait()
    log = bytearray()
    running = executor.recover(tmp_path / "handle", quiet(log))
    (place / "go-on").touch()
    execution = running.wait()

    assert (execution.ok, execution.ending, execution.program_exit) == (True, "exited", 0)
    assert bytes(log) == execution.log == b"before\nafter\n"


def test_a_supervisor_needs_none_of_its_files_once_it_runs(executor, tmp_path, place):
    with begun(executor, tmp_path, place) as (handle, running):  # only to have a whole job file
        (place / "go-on").touch()
        running.wait()
    for name in ("go-on", "there"):
        (place / name).unlink()
    fresh = tmp_path / "fresh"
    job = json.loads((handle / "job.json").read_text())
    shutil.rmtree(tmp_path / "run")
    make_directory(tmp_path / "run")
    RunFolder(fresh).write_job(RunFolder(handle).job())
    assert job["spec"]["preset"] == "hostile"
    installed = tmp_path / "installed"
    shutil.copytree(Path(bridge.__file__).parent, installed / "bridge")
    code = "from bridge.cli.host.main import main; raise SystemExit(main())"
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, "supervise", str(fresh)],
        env={"PYTHONPATH": str(installed), "PATH": os.environ["PATH"]},
        cwd="/",
    )
    until((place / "there").exists)
    where = Path(f"/proc/{supervisor.pid}/environ").read_bytes()
    shutil.rmtree(installed)  # what pip does to a package that is upgraded
    (place / "go-on").touch()

    assert supervisor.wait(240) == 0
    assert str(installed).encode() in where
    execution = executor.recover(fresh, quiet())
    assert (execution.ending, execution.log) == ("exited", b"before\nafter\n")


def test_reports_come_back_from_their_archive():
    reports = {"a.json": b"{}", "deep/er/ünï.bin": bytes(range(256)), "x" * 200: b""}

    assert unpacked(packed(reports)) == reports


WEIGHED = """
import os
print("nice", os.nice(0))
for line in open("/proc/self/cgroup"):
    _, names, path = line.strip().split(":", 2)
    for file in (f"/sys/fs/cgroup/{names}{path}/cpu.shares", f"/sys/fs/cgroup{path}/cpu.weight"):
        if os.path.exists(file): print(os.path.basename(file), open(file).read().strip())
"""


def test_a_run_weighs_less_than_others_that_want_a_processor_and_its_record_says_how(plain):
    execution = plain.run(WEIGHED)
    (command,) = execution.commands
    lines = execution.log.decode().splitlines()
    assert command.weight in lines
    # The nice value is ours, inherited.
    of_group = command.weight in {"cpu.weight 50", "cpu.shares 512"} and f"nice {os.nice(0)}" in lines
    assert command.weight == "nice 10" or of_group
