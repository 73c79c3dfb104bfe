"""Whatever a job does, its bounds hold, the reason is right and nobody of it is left."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.executor.processes.cgroup import Cgroup
from bridge.executor.sandbox.user import SETPRIV_PATHS
from bridge.limits import MIB
from bridge.records.jobspec import SandboxSpec
from bridge.system.process import run
from tests.fakes.local_jobs import RUN_ID
from tests.integration.executor.hostile import FORKS, NO_TERM, limits_of, no_survivors
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the hostile programs are written for Linux")


def test_children_of_every_kind_die_with_a_command_that_ends(jobs, token):
    execution = jobs.run(f"{FORKS}\nprint('{token}')")

    assert (execution.ok, execution.ending, execution.program_exit) == (True, "exited", 0)
    no_survivors(execution)


def test_children_of_every_kind_die_at_the_wall_limit_although_they_ignore_term(jobs, token):
    execution = jobs.run(f"{NO_TERM}{FORKS}\ntime.sleep(600)  # {token}", wall_s=0.8)

    assert (execution.ok, execution.ending) == (True, "timed_out")
    assert limits_of(execution) == ["wall_s"]
    no_survivors(execution)


def test_a_job_may_clean_up_after_term_within_the_grace_period(jobs, token):
    program = f"""
import os, signal, sys, time
def end(*_):
    os.write(1, b"cleaned up")  # the signal may come inside the print below, which print would not enter again
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
print("{token}", flush=True)
time.sleep(600)
"""
    execution = jobs.run(program, grace_s=20.0, stop=lambda: "cancelled" if jobs.heard else None)

    assert (execution.ending, execution.program_exit) == ("cancelled", 7)
    assert b"cleaned up" in execution.log


def test_a_job_that_shows_no_life_is_ended_for_it(jobs, token):
    execution = jobs.run(f"import time; print('{token}', flush=True); time.sleep(600)", inactivity_s=0.6)

    assert execution.ending == "timed_out"
    assert limits_of(execution) == ["inactivity_s"]
    no_survivors(execution)


@pytest.mark.parametrize("ending", ["cancelled", "interrupted"])
def test_a_stop_that_is_asked_for_ends_the_job_with_that_ending(jobs, token, ending):
    execution = jobs.run(
        f"{NO_TERM}{FORKS}\nprint('{token}', flush=True)\ntime.sleep(600)",
        stop=lambda: ending if jobs.heard else None,
    )

    assert (execution.ok, execution.ending) == (True, ending)
    assert (execution.program_exit, execution.commands[0].signal) == (137, 9)
    assert execution.limits_hit == ()
    no_survivors(execution)


def test_a_fork_bomb_is_stopped_by_the_process_bound(jobs, token):
    program = f"import os\nwhile True:\n  try: os.fork()\n  except OSError: pass  # {token}"
    # The kernel counts a user's threads, and runs of other tests are the same user: 650 of a bomb leave them none.
    execution = jobs.run(program, processes=40, tasks=120)

    assert execution.ending == "limit"
    assert limits_of(execution)[0] == "processes"
    no_survivors(execution)


def test_a_thread_bomb_ends_at_its_bound(jobs, token):
    program = f"""
import threading, time
while True:
    try:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    except RuntimeError:
        pass  # {token}
"""
    execution = jobs.run(program, tasks=60, memory_bytes=4096 * MIB)

    assert execution.ending == "limit"
    assert limits_of(execution)[0] == "tasks"
    no_survivors(execution)


CROWDED_UID = 54323  # of no other test: a thousand threads more would leave other runs of their user none
CROWD = f"""
import os, threading, time
os.setgid({CROWDED_UID})
os.setuid({CROWDED_UID})
threading.stack_size(65536)
for _ in range(1300): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("there", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes a control group that a run cannot leave")
def test_threads_that_other_runs_of_its_user_start_leave_a_run_in_a_control_group_its_own(plain, token):
    group = Cgroup.create(f"{RUN_ID}-looked-for", memory_bytes=512 * MIB, threads=8)
    counts = any((path / "pids.max").exists() for path in group.paths)
    group.remove()
    if not counts:
        pytest.skip("root cannot bound the threads of a control group here")
    program = f"""
import os, threading, time
print("waiting", flush=True)
while not os.path.exists("go-on"): time.sleep(0.01)
for _ in range(30): threading.Thread(target=time.sleep, args=(0.5,)).start()  # {token}
"""
    crowd: list[subprocess.Popen] = []
    with contextlib.ExitStack() as stack:

        def gather() -> None:
            if b"waiting" in plain.heard and not crowd:
                crowd.append(subprocess.Popen([sys.executable, "-c", CROWD], stdout=subprocess.PIPE))
                stack.enter_context(crowd[0])
                stack.callback(crowd[0].kill)
                assert crowd[0].stdout.readline() == b"there\n"
                (plain.directory.work / "go-on").touch()

        execution = plain.run(program, stop=gather, sandbox=SandboxSpec(mode="off", uid=CROWDED_UID), tasks=60)

    assert (execution.ending, execution.program_exit) == ("exited", 0), execution.log.decode()
    no_survivors(execution)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives up rights that it has")
def test_a_run_starts_where_its_user_has_so_many_pipes_that_new_ones_are_small(tmp_path):
    script = f"""
import fcntl, os
from pathlib import Path
from bridge.executor.local import LocalExecutor
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs
pipes = []
for _ in range(int(Path("/proc/sys/fs/pipe-user-pages-soft").read_text()) // 256 + 1):
    pipes.append(os.pipe())
    try:
        fcntl.fcntl(pipes[-1][1], fcntl.F_SETPIPE_SZ, 1 << 20)
    except PermissionError:
        break
while fcntl.fcntl(pipes[-1][1], fcntl.F_GETPIPE_SZ) > 2 * os.sysconf("SC_PAGESIZE"):
    pipes.append(os.pipe())
done = Jobs(LocalExecutor(SystemClock()), Path({str(tmp_path)!r})).run(argv=[("/usr/bin/id", "-u")])
print(done.ok, done.program_exit)
"""
    setpriv = next(path for path in SETPRIV_PATHS if Path(path).exists())
    given_up = [f"--{what}=-sys_admin,-sys_resource" for what in ("inh-caps", "bounding-set")]
    done = run([setpriv, *given_up, sys.executable, "-c", script], cwd=Path(__file__).parents[3], timeout_s=PATIENCE_S)
    assert done.stdout == b"True 0\n", done.describe()


def test_a_memory_flood_is_stopped_by_the_memory_bound(jobs, token):
    execution = jobs.run(f"kept = []\nwhile True: kept.append(bytearray({MIB}))  # {token}", memory_bytes=96 * MIB)

    assert execution.ending == "limit"
    assert limits_of(execution) == ["memory_bytes"]
    no_survivors(execution)


def test_a_memory_flood_by_many_small_processes_is_stopped_too(jobs, token):
    program = f"""
import os, time
for _ in range(20):
    if os.fork() == 0:
        kept = bytearray(16 * 1024 * 1024)
        for i in range(0, len(kept), 4096): kept[i] = 1
        time.sleep(600)
time.sleep(600)  # {token}
"""
    execution = jobs.run(program, memory_bytes=160 * MIB)

    assert limits_of(execution) == ["memory_bytes"]
    no_survivors(execution)


def test_shared_pages_are_not_counted_once_per_process(plain, token):
    program = f"""
import os, time
kept = b"x" * (48 * 1024 * 1024)
children = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        time.sleep(1.0)
        os._exit(0)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)  # {token}
"""
    execution = plain.run(program, memory_bytes=256 * MIB)

    assert (execution.ending, execution.program_exit) == ("exited", 0)


def test_a_processor_hog_is_stopped_by_the_processor_bound_over_all_its_processes(jobs, token):
    execution = jobs.run(f"import os\nos.fork(); os.fork()\nwhile True: pass  # {token}", cpu_s=0.6)

    assert execution.ending == "limit"
    assert limits_of(execution) == ["cpu_s"]
    no_survivors(execution)


@pytest.mark.parametrize("where", ["HOME", "TMPDIR", "KAKEYA_OUT", "PWD"])
def test_a_disk_flood_is_stopped_by_the_output_bound_wherever_it_writes(plain, token, where):
    program = f"""
import os, time
for index in range(1000):
    with open(os.path.join(os.environ["{where}"], str(index)), "wb") as file:
        file.write(b"x" * 1048576)
    time.sleep(0.01)  # {token}
"""
    execution = plain.run(program, output_bytes=12 * MIB)

    assert execution.ending == "limit"
    assert "output_bytes" in limits_of(execution)
    no_survivors(execution)


def test_one_huge_file_is_stopped_by_the_kernel_and_named_as_the_output_bound(jobs, token):
    execution = jobs.run(f"f = open('huge', 'wb')\nwhile True: f.write(b'x' * {MIB})  # {token}", output_bytes=8 * MIB)

    assert execution.ending == "limit"
    assert limits_of(execution) == ["output_bytes"]
    assert (jobs.directory.work / "huge").stat().st_size <= 8 * MIB + 8 * MIB // 4 + MIB
    no_survivors(execution)


def test_an_inode_flood_is_stopped_by_the_file_bound(plain, token):
    program = f"""
import itertools, os
for index in itertools.count():
    os.close(os.open(str(index), os.O_CREAT | os.O_WRONLY))  # {token}
"""
    execution = plain.run(program, output_files=3000)

    assert execution.ending == "limit"
    assert limits_of(execution) == ["output_files"]
    assert execution.limits_hit[0].bound == 3000
    no_survivors(execution)


def test_open_files_are_bounded(jobs, token):
    execution = jobs.run(f"kept = []\nwhile True: kept.append(open('/dev/null'))  # {token}", open_files=64)

    assert execution.program_exit == 1
    assert b"Too many open files" in execution.log


def test_processor_time_burnt_by_short_lived_processes_counts(jobs, token):
    program = f"""
import os, time
def burn():
    end = time.process_time() + 0.03
    while time.process_time() < end: pass
    os._exit(0)
while True:
    children = [os.fork() or burn() for _ in range(3)]
    for pid in children: os.waitpid(pid, 0)  # {token}
"""
    execution = jobs.run(program, cpu_s=0.8)

    assert limits_of(execution) == ["cpu_s"]
    assert execution.commands[0].cpu_s >= 0.8
    no_survivors(execution)
