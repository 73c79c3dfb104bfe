"""Whoever of keeper and runner dies or stands still, the job does not outlive its bounds."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

import psutil
import pytest

from bridge.executor.processes.tree import kill_leftovers
from tests.fakes.local_jobs import Jobs, living
from tests.integration.executor.hostile import FORKS, no_survivors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the hostile programs are written for Linux")


def send_to_keeper(jobs: Jobs, number: int, sent: list[int]):
    """Return a hook that sends the keeper a signal once the job runs; as root's, the job itself may not.

    `sent` gets the keeper's id; of a job that a limit has ended before, the keeper is gone.
    """

    def hook() -> None:
        if jobs.heard and not sent:
            with contextlib.suppress(IndexError, ProcessLookupError, psutil.NoSuchProcess):
                pid = jobs.keeper().pid
                os.kill(pid, number)
                sent.append(pid)

    return hook


def test_killing_its_keeper_ends_the_job_and_is_told(plain, token):
    seconds = f"600.{os.getpid()}"  # no other test's
    program = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("here", flush=True)
        os.execve("/bin/sleep", ["sleep", "{seconds}"], {{}})
    os._exit(0)
time.sleep(600)  # {token}
"""
    execution = plain.run(program, stop=send_to_keeper(plain, signal.SIGKILL, []))

    assert not execution.ok
    assert "the process that held the command was killed" in execution.message
    assert living(f"sleep\0{seconds}") == []
    no_survivors(execution)


def test_stopping_its_keeper_does_not_outlast_the_limits(plain, token):
    program, sent = f"import time\nprint('here', flush=True)\ntime.sleep(600)  # {token}", list[int]()
    for wall_s in (0.8, 8.0, 80.0):  # on a busy machine the limit may come before the program does
        execution = plain.run(program, wall_s=wall_s, stop=send_to_keeper(plain, signal.SIGSTOP, sent))
        assert execution.ending == "timed_out"
        no_survivors(execution)
        if sent:
            break
    assert sent


def test_a_dead_supervisor_takes_its_job_with_it(plain, token):
    def stop():
        if plain.heard:
            with contextlib.suppress(ProcessLookupError):  # asked again after it has gone
                os.kill(plain.started[-1][0], signal.SIGKILL)

    execution = plain.run(f"{FORKS}\nprint('{token}', flush=True)\ntime.sleep(600)", stop=stop)

    assert (execution.ending, execution.message) == ("killed", "its supervisor was killed")
    assert living(token) == []


def test_leftovers_are_found_by_marker_when_supervisor_and_keeper_are_gone(plain, token):
    """What the keeper cannot kill, whoever reads the folder next does: by control group and by marker."""
    done: list[int] = []

    def stop():
        if plain.heard and not done:
            plain.keeper().suspend()
            done.append(plain.started[-1][0])
            os.kill(done[0], signal.SIGKILL)

    execution = plain.run(f"{FORKS}\nprint('{token}', flush=True)\ntime.sleep(600)", stop=stop)

    assert execution.ending == "killed"
    assert b"processes outlived the supervisor and were killed" in execution.log
    assert living(token) == []
    groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names]  # passes by those that go meanwhile
    assert not [name for name in groups if name.startswith(f"kakeya-{plain.started[-1][2]}-")]


def test_a_process_that_only_reuses_the_id_is_left_alone():
    assert kill_leftovers(os.getpid(), 12345.0, "nobody-has-this-marker") == 0


def test_two_runs_at_once_do_not_kill_each_other(executor, tmp_path, token):
    results = {}

    def go(name: str, seconds: float) -> None:
        base = tmp_path / name
        base.mkdir()
        results[name] = Jobs(executor, base).run(f"import time; time.sleep({seconds}); print('{name} {token}')")

    threads = [threading.Thread(target=go, args=(name, seconds)) for name, seconds in (("short", 0.1), ("long", 1.2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {name: result.program_exit for name, result in results.items()} == {"short": 0, "long": 0}


def test_a_hook_that_raises_leaves_nothing_running(jobs, token):
    def stop():
        if jobs.heard:
            raise LookupError("the runner's own trouble")

    with pytest.raises(LookupError, match="own trouble"):
        jobs.run(f"{FORKS}\nprint('{token}', flush=True)\ntime.sleep(600)", stop=stop)
