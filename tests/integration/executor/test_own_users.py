"""Runs of an ordinary user's runner as users of its range in /etc/subuid, with the real newuidmap."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import SandboxUnavailableError
from bridge.executor.holder.folder import RunFolder
from bridge.executor.interface import HostPaths, RunKind
from bridge.executor.local import LocalExecutor
from bridge.executor.processes.own_user import MOST, UserRange, listed, take_number
from bridge.executor.processes.subreaper import stage
from bridge.executor.sandbox.user import closed_to
from bridge.executor.trial import make_directory
from bridge.records.jobspec import SandboxSpec
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs
from tests.integration.executor.test_supervisor import quiet
from tests.support.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[3]
UID, FIRST, COUNT = 65531, 300000, 1000
PROGRAM = """
import os, sys, time
with open(os.environ["KAKEYA_OUT"] + "/report.json", "w") as file: file.write("{}")
print(os.getuid(), flush=True)
while not os.path.exists("go-on"): time.sleep(0.02)
"""


class Begun:
    """A run in the middle, with the user that its supervisor is for the host."""

    def __init__(self, executor: LocalExecutor, folder: Path) -> None:
        folder.mkdir()
        self.handle = folder / "handle"
        argv = (sys.executable, "-I", "-S", "-c", PROGRAM)
        spec = Jobs(executor, folder).spec(argv=[argv], sandbox=SandboxSpec(mode="required"))
        with executor.start(spec, make_directory(folder / "run"), self.handle) as starting:
            self.running = starting.go(quiet())
        until(lambda: (self.handle / "log").read_bytes() or RunFolder(self.handle).kept(), why="it wrote nothing")
        self.facts = RunFolder(self.handle).facts()
        assert self.facts is not None, RunFolder(self.handle).kept()
        self.uid = Path(f"/proc/{self.facts.pid}").stat().st_uid

    def ended(self) -> dict[str, object]:
        """Return what it came to; the runner's user cannot write where it waits."""
        RunFolder(self.handle).stop("interrupted")
        execution = self.running.wait()
        return {"ending": execution.ending, "log": execution.log.decode(), "reports": sorted(execution.reports)}


def as_ordinary_user(base: Path) -> dict[str, object]:
    """Try the sandbox, run two at a time, kill a third run's supervisor; say what came of each."""
    key = base / "runner.key"
    key.write_text("not for the run")
    key.chmod(0o600)
    executor = LocalExecutor(SystemClock(), HostPaths(private=(str(key),)), own_users=base / "users")
    trial = executor.trial(None, RunKind("request"))
    begun = [Begun(executor, base / name) for name in ("one", "two")]
    users = [run.uid for run in begun]
    ends = [run.ended() for run in begun]
    third = Begun(executor, base / "three")
    os.kill(third.facts.pid, 9)
    killed = third.running.wait()
    return {
        "trial": [trial.applied.kind, trial.applied.uid, trial.applied.reason],
        "open": [escape.what for escape in trial.escapes if not escape.refused],
        "users": users,
        "ends": ends,
        "killed": [killed.ending, sorted(killed.reports)],
    }


@pytest.fixture(scope="module")
def came_to(tmp_path_factory, missing) -> dict[str, object]:
    if sys.platform != "linux" or os.getuid() != 0:
        pytest.skip("root makes a user with a range, on Linux")
    if shutil.which("newuidmap") is None:
        missing("sandbox", "newuidmap is not installed (uidmap)")
    base = tmp_path_factory.mktemp("runner")
    os.chown(base, UID, UID)
    etc = tmp_path_factory.mktemp("etc")
    for name in ("subuid", "subgid"):
        (etc / name).write_text(f"other:100000:65536\nranger:{FIRST}:{COUNT}\n")
    account = f"ranger:x:{UID}:{UID}::{base}:/bin/sh\n"
    (etc / "passwd").write_text(Path("/etc/passwd").read_text() + account)

    def become() -> None:
        needed = dict.fromkeys(map(str, (sys.prefix, os.path.realpath(sys.base_prefix), ROOT, base)))
        closed = closed_to(UID, needed)
        stage([], {})
        for path in etc.iterdir():
            subprocess.run(["mount", "--bind", str(path), f"/etc/{path.name}"], check=True)
        stage(list(dict.fromkeys(closed.values())), {path: path for path in closed})
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)

    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom {__name__} import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, base],
        preexec_fn=become, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False, cwd="/",
        env={"HOME": str(base)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    print(json.dumps(as_ordinary_user(Path(sys.argv[1]))))


def test_the_sandbox_is_tried_as_such_a_user(came_to) -> None:
    kind, uid, reason = came_to["trial"]
    assert (kind, uid) == ("bwrap", FIRST + COUNT - 1), reason
    assert came_to["open"] == []


def test_runs_that_go_on_together_are_different_users_of_the_range_who_give_their_reports(came_to) -> None:
    first, second = came_to["users"]
    assert first != second
    assert {first, second} < set(range(FIRST + COUNT - MOST, FIRST + COUNT))
    for uid, end in zip((first, second), came_to["ends"], strict=True):
        assert end == {"ending": "interrupted", "log": f"{uid}\n", "reports": ["report.json"]}


def test_a_killed_supervisor_of_such_a_run_is_an_end_with_its_reports(came_to) -> None:
    assert came_to["killed"] == ["killed", ["report.json"]]


@pytest.mark.parametrize("line", ["ranger:7:3", f"{UID}:7:3", "ranger:x:1\nranger:9:0\nranger:7:3\nranger:1:9"])
def test_the_first_range_of_a_user_counts_by_name_or_number(tmp_path, line) -> None:
    (tmp_path / "subuid").write_text(f"other:100000:65536\n# ranger:1:1\n{line}\n")
    assert listed(tmp_path / "subuid", UID, "ranger") == (7, 3)
    with pytest.raises(SandboxUnavailableError, match="subuid lists no range for somebody") as caught:
        listed(tmp_path / "subuid", 7, "somebody")
    assert "usermod --add-subuids" in caught.value.remedy
    with pytest.raises(SandboxUnavailableError, match="no range"):
        listed(tmp_path / "subgid", UID, "ranger")


def test_users_of_runs_are_none_that_containers_of_the_range_are_likely_to_be() -> None:
    whole = UserRange(100000, 200000, 65536)
    runs = {whole.user(number)[0] - 100000 for number in range(MOST)}
    assert not runs & {*range(60000), 65532, 65534}
    assert UserRange(7, 9, 3).user(2) == (7, 9)


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="root makes a process another user's")
def test_a_user_whose_processes_outlive_who_locked_it_is_not_taken_again(tmp_path) -> None:
    numbers = UserRange(FIRST + 5000, FIRST + 5000, 4)
    program = f"import os, sys; os.setuid({numbers.user(0)[0]}); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-I", "-S", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as left:
        left.stdout.readline()
        assert take_number(tmp_path, numbers) == 1
    assert take_number(tmp_path, numbers) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="a root runner is refused")
def test_a_runner_that_is_root_is_refused_by_name(tmp_path) -> None:
    trial = LocalExecutor(SystemClock(), own_users=tmp_path).trial()
    assert trial.applied.kind == "none"
    assert "this one is root; leave sandbox.own_users out" in trial.applied.reason
