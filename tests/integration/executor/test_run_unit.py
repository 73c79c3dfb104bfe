"""A run behind a service manager's socket: another user, its own folders, and the same endings as everywhere."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bridge.errors import InfrastructureError
from bridge.executor.holder.folder import RunFolder
from bridge.executor.interface import HostPaths, RunKind
from bridge.executor.local import LocalExecutor
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs, living
from tests.integration.executor.test_supervisor import quiet
from tests.support.run_unit import AS_UNIT, UID, listening, open_the_way
from tests.support.waiting import until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="root makes a user for the unit"),
    pytest.mark.ci,
]
SLOW = """
import os, sys, time
with open(os.environ["KAKEYA_OUT"] + "/report.json", "w") as file: file.write("{}")
print(os.listdir("."), os.getuid(), flush=True)
while not os.path.exists("go-on"): time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Yield the path of a socket behind which a stub of a service manager listens."""
    with listening(tmp_path_factory.mktemp("unit") / "run.sock") as path:
        yield path


@pytest.fixture(scope="module")
def private(tmp_path_factory) -> Path:
    key = tmp_path_factory.mktemp("state") / "runner.key"
    key.write_text("not for the run")
    key.chmod(0o600)
    return key


@pytest.fixture(scope="module")
def executor(address, private) -> LocalExecutor:
    return LocalExecutor(SystemClock(), HostPaths(private=(str(private),)), service=address)


class Begun:
    """A run of the slow program, in the middle."""

    def __init__(self, executor: LocalExecutor, folder: Path, mode="required", token: str = "", code="host") -> None:
        self.handle, self.log = folder / "handle", bytearray()
        directory = make_directory(folder / "run")
        (directory.work / "brought.txt").write_text("by the request")
        argv = (sys.executable, "-I", "-S", "-c", SLOW, token)
        spec = Jobs(executor, folder).spec(argv=[argv], sandbox=SandboxSpec(mode=mode), code=code)
        with executor.start(spec, directory, self.handle, ()) as starting:
            self.running = starting.go(quiet(self.log))
        until(lambda: b"brought" in (self.handle / "log").read_bytes(), why="it never wrote its first line")
        self.facts = RunFolder(self.handle).facts()

    @property
    def holder(self) -> psutil.Process:
        return psutil.Process(self.facts.pid).parent()

    def end(self) -> psutil.Process:
        """Let the program go on to its end; return which process held the run."""
        holder = self.holder
        (Path(self.facts.out).parent / "work" / "go-on").touch()
        assert self.running.wait().program_exit == 0
        return holder


def gone(process: psutil.Process) -> bool:
    """Whether it has ended; the stub of a service manager collects its dead late."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_sandbox_of_the_unit_is_tried_as_the_unit_s_user(executor) -> None:
    applied = executor.sandbox(None, RunKind("request"))

    assert (applied.kind, applied.uid) == ("bwrap", UID), applied.reason
    tried = {escape.what: escape.refused for escape in executor.escapes(None, RunKind("request"))}
    assert tried["reach the runner's key, policy, state or home"]
    assert all(tried.values())


def test_a_run_is_another_user_in_folders_of_its_own_and_outlives_who_follows_it(executor, tmp_path, token) -> None:
    begun = Begun(executor, tmp_path, token=token)
    status = Path(f"/proc/{begun.facts.pid}/status").read_text()
    memory_of = {Path(f"/proc/{pid}/mem").stat().st_uid for pid in (begun.facts.pid, begun.holder.pid)}
    del begun.running  # the runner is gone
    again = executor.recover(begun.handle, quiet(begun.log))
    place = Path(begun.facts.out).parent
    (place / "work" / "go-on").touch()
    execution = again.wait()

    assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}" in status
    assert memory_of == {0}, "a run that got out of its sandbox could take over who holds it"
    assert (execution.ok, execution.ending, execution.program_exit) == (True, "exited", 0)
    assert (execution.sandbox.kind, execution.sandbox.uid, execution.reports) == ("bwrap", UID, {"report.json": b"{}"})
    assert bytes(begun.log) == execution.log == f"['brought.txt'] {UID}\n".encode()
    assert not place.is_relative_to(tmp_path)
    until(lambda: not place.exists(), why="its folders stayed")
    assert {path.stat().st_uid for path in tmp_path.rglob("*")} == {0}


def test_a_process_holds_runs_one_after_another_but_none_after_one_that_may_leave_something(executor, tmp_path) -> None:
    folders = (tmp_path / str(number) for number in itertools.count())

    def held_by(mode: str, code: str = "host") -> psutil.Process:
        folder = next(folders)
        folder.mkdir()
        return Begun(executor, folder, mode, code=code).end()

    processes: list[psutil.Process] = []
    for pause_s in range(12):  # longer and longer: a busy machine takes its time to clear up after a run
        processes.append(held_by("required"))
        if processes[-1] in processes[:-1]:
            break
        time.sleep(pause_s)
    assert processes[-1] in processes[:-1], "each run has a process of its own"
    for mode, code in (("off", "host"), ("required", "request")):
        spent = held_by(mode, code)
        until(lambda spent=spent: gone(spent), why=f"the process of a run stayed: sandbox {mode}, code of the {code}")


@pytest.mark.parametrize("whom", ["supervisor", "unit"])
def test_what_is_killed_has_begun_and_keeps_what_can_be_kept(executor, tmp_path, token, whom) -> None:
    begun = Begun(executor, tmp_path, token=token)
    holder = begun.holder
    if whom == "unit":  # as a control group is killed: all at once
        for process in (holder, *holder.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):  # the first one's end may take others with it
                process.kill()
    else:
        os.kill(begun.facts.pid, signal.SIGKILL)
    execution = begun.running.wait()

    assert (execution.ok, execution.ending, execution.message) == (False, "killed", "its supervisor was killed")
    assert execution.log.startswith(b"['brought.txt']")
    assert execution.reports == {"report.json": b"{}"}  # root may still read them; systemd removes them with the unit
    until(lambda: not living(token), why="a process outlived the supervisor")


def test_a_service_that_is_stopped_ends_its_run_as_interrupted(executor, tmp_path, token) -> None:
    begun = Begun(executor, tmp_path, token=token)
    begun.holder.terminate()
    execution = begun.running.wait()

    assert (execution.ending, execution.reports) == ("interrupted", {"report.json": b"{}"})


def test_a_run_that_is_not_let_go_starts_nothing(executor, tmp_path) -> None:
    spec = Jobs(executor, tmp_path).spec("print('ran')", sandbox=SandboxSpec(mode="required"))
    with executor.start(spec, make_directory(tmp_path / "run"), tmp_path / "handle"):
        pass
    until(lambda: not RunFolder(tmp_path / "handle").taken())

    assert executor.recover(tmp_path / "handle", quiet()) is None


def test_a_socket_nobody_listens_at_is_said_by_name_before_anything_starts(tmp_path) -> None:
    executor = LocalExecutor(SystemClock(), service=str(tmp_path / "none.sock"))
    spec = Jobs(executor, tmp_path).spec("pass", sandbox=SandboxSpec(mode="off"))

    assert "none.sock" in executor.sandbox().reason
    with pytest.raises(InfrastructureError, match=r"none\.sock: No such file"):
        executor.start(spec, make_directory(tmp_path / "run"), tmp_path / "handle")


def test_systemd_s_own_activation_starts_it(tmp_path, token, missing, private) -> None:
    """The same with what systemd brings for trying a socket unit out."""
    program = shutil.which("systemd-socket-activate")
    if program is None:
        missing("systemd", "systemd-socket-activate is not installed")
    path = tmp_path / "run.sock"
    manager = subprocess.Popen(
        [program, "--accept", "--inetd", f"--listen={path}", *AS_UNIT],
        preexec_fn=open_the_way, cwd="/", stderr=subprocess.DEVNULL,  # noqa: PLW1509
    )  # fmt: skip
    try:
        until(path.exists, why="it does not listen")
        executor = LocalExecutor(SystemClock(), HostPaths(private=(str(private),)), service=str(path))
        Begun(executor, tmp_path, token=token).end()
    finally:
        manager.kill()
        manager.wait()
