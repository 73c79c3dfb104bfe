"""What the host kills is an ending of its own: never "not started" of something that ran, log and report kept."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from bridge.executor.endings import of_execution
from bridge.executor.processes.tree import alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these kill Linux processes")

MEMORY = Path("/sys/fs/cgroup/memory")
WAITS = """
import os, time
with open(os.path.join(os.environ["KAKEYA_OUT"], "report.json"), "w") as file:
    file.write("{}")
print("the program ran", flush=True)
time.sleep(600)  # """


def kill_once_it_ran(jobs, choose):
    """Return a stop hook that kills one process of the run as soon as its program has written to the log."""
    sent: list[int] = []

    def hook() -> None:
        if b"the program ran" in jobs.heard and not sent:
            sent.append(choose(jobs.keeper()).pid)
            os.kill(sent[0], signal.SIGKILL)

    return hook


def seen_to_have_run(execution, words: str) -> None:
    assert (execution.ok, execution.ending) == (False, "killed")
    assert words in execution.message
    assert of_execution(execution).reason == "infrastructure"
    assert len(execution.commands) == 1
    assert b"the program ran" in execution.log
    assert execution.reports == {"report.json": b"{}"}


def test_a_sandbox_that_is_killed_after_the_program_ran(caged, token):
    hook = kill_once_it_ran(caged, lambda subreaper: subreaper.children()[0])
    execution = caged.run(f"{WAITS}{token}", stop=hook)

    seen_to_have_run(execution, "its sandbox was killed by signal 9")


@pytest.mark.parametrize("which", ["the sandbox", "the subreaper"])
def test_who_ends_the_program_and_asks_us_as_well_has_interrupted_the_run(caged, token, which):
    """A cluster's queue that cancels a job signals all of its processes; the supervisor may be the last of them."""
    sent: list[int] = []

    def hook() -> str | None:
        if sent:
            return "interrupted" if not alive(victim[0]) else None
        if b"the program ran" in caged.heard:
            keeper = caged.keeper()
            victim.append(keeper.children()[0] if which == "the sandbox" else keeper)
            sent.append(victim[0].pid)
            os.kill(sent[0], signal.SIGTERM if which == "the sandbox" else signal.SIGKILL)
        return None

    victim: list[psutil.Process] = []
    execution = caged.run(f"{WAITS}{token}", stop=hook)

    assert (execution.ok, execution.ending) == (True, "interrupted")
    assert execution.reports == {"report.json": b"{}"}


def test_a_subreaper_that_is_killed_after_the_program_ran(jobs, token):
    tree: list[psutil.Process] = []

    def choose(subreaper):
        tree.extend(subreaper.children(recursive=True))
        return subreaper

    execution = jobs.run(f"{WAITS}{token}", stop=kill_once_it_ran(jobs, choose))

    seen_to_have_run(execution, "the process that held the command was killed")
    assert not [process for process in tree if alive(process)]


@pytest.fixture
def small_memory():
    """Yield a function that bounds a process tree's memory from outside, as a small host does."""
    group = MEMORY / f"kakeya-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(96 << 20))
    except OSError as error:
        pytest.skip(f"no memory group of version 1 can be made here: {error.strerror}")
    yield lambda pid: (group / "cgroup.procs").write_text(str(pid))
    group.rmdir()


def test_a_program_the_kernel_kills_for_want_of_memory(plain, token, small_memory):
    program = f"""
import os, time
with open(os.path.join(os.environ["KAKEYA_OUT"], "report.json"), "w") as file:
    file.write("{{}}")
print("the program ran", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
held = bytearray(300 << 20)  # {token}
for place in range(0, len(held), 4096):
    held[place] = 1
"""
    moved: list[int] = []

    def bound() -> None:
        if b"the program ran" in plain.heard and not moved:
            moved.append(plain.keeper().children()[0].pid)
            small_memory(moved[0])
            (plain.directory.work / "go").touch()

    execution = plain.run(program, stop=bound)

    seen_to_have_run(execution, "the host ran out of memory")
    assert execution.program_exit == 137


def test_a_program_that_kills_itself_is_its_own_failure(jobs, token):
    execution = jobs.run(f"import os; print('the program ran', flush=True); os.kill(os.getpid(), 9)  # {token}")

    assert (execution.ok, execution.ending, execution.program_exit) == (True, "exited", 137)
