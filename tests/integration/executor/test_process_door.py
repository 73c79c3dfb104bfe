"""The door to other processes, with real ones."""

from __future__ import annotations

import os
import sys
import time

import psutil
import pytest

from bridge.errors import InfrastructureError
from bridge.system.process import Child, run, spawn_detached
from tests.fakes.local_jobs import living


@pytest.fixture
def token(token):
    """The same, patiently: the door sends KILL to a group and does not wait for members that are not its children."""
    yield token
    deadline = time.monotonic() + 240
    while living(token) and time.monotonic() < deadline:
        time.sleep(0.01)


def python(program: str, **fields):
    return run([sys.executable, "-I", "-S", "-c", program], **({"timeout_s": 60.0, "env": {}} | fields))


def test_both_streams_and_the_exit_code_come_back():
    done = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")

    assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert not done.ok
    assert "exit code 3" in done.describe()
    assert done.describe().endswith("err")


def test_a_signal_is_a_negative_exit_code():
    assert python("import os; os.kill(os.getpid(), 11)").exit_code == -11


def test_stdin_is_empty_unless_given():
    assert python("import sys; print(repr(sys.stdin.read()))").stdout == b"''\n"
    done = python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", input=b"x" * 3_000_000)
    assert done.stdout == b"x" * 3_000_000


def test_a_program_that_does_not_read_its_input_is_no_error():
    assert python("pass", input=b"x" * 3_000_000).ok


def test_environment_and_directory_are_what_was_given(tmp_path):
    done = python("import os; print(sorted(os.environ), os.getcwd())", env={"A": "1"}, cwd=tmp_path)

    assert "'A'" in done.stdout.decode()
    assert "HOME" not in done.stdout.decode()
    assert str(tmp_path) in done.stdout.decode()


def test_the_time_limit_kills_the_whole_group(token):
    program = f"import os, time\nos.fork()\nos.fork()\ntime.sleep(600)  # {token}"
    done = python(program, timeout_s=0.7)

    assert done.timed_out
    assert not done.ok
    assert "ran past its time limit" in done.describe()


def test_a_program_that_closes_its_streams_and_stays_is_bounded_too(token):
    assert python(f"import os, time\nos.closerange(0, 9)\ntime.sleep(600)  # {token}", timeout_s=0.7).timed_out


def test_a_grandchild_that_holds_the_streams_open_does_not_delay_the_answer_to_the_limit(token):
    program = f"import os, time\nprint('done', flush=True)\nif os.fork() == 0: time.sleep(600)  # {token}"
    done = python(program, timeout_s=300.0)

    assert (done.ok, done.stdout) == (True, b"done\n")


def test_output_beyond_the_bound_is_thrown_away_and_said():
    done = python("print('x' * 1_000_000)", max_output_bytes=1000)

    assert (done.stdout, done.truncated) == (b"x" * 1000, True)


def test_a_program_that_is_not_there_is_one_clear_error(tmp_path):
    with pytest.raises(InfrastructureError, match="cannot start '/no/such/program'"):
        run(["/no/such/program"], timeout_s=1.0)
    with pytest.raises(InfrastructureError, match="cannot start '/no/such/program'"):
        Child(["/no/such/program"], env={}, cwd=tmp_path, output_fd=1)


def test_a_detached_program_outlives_the_call_in_a_session_of_its_own(tmp_path, token):
    log = tmp_path / "deep" / "runner.log"
    program = f"import os, time; print('here', os.getsid(0) != {os.getsid(0)}, flush=True); time.sleep(600)  # {token}"
    pid = spawn_detached([sys.executable, "-c", program], log=log, env={"A": "1"})
    try:
        deadline = time.monotonic() + 240
        while b"here" not in log.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.02)

        assert log.read_text() == "here True\n"
        assert log.stat().st_mode & 0o777 == 0o600
        assert psutil.Process(pid).ppid() != os.getpid()
        assert len(living(token)) == 1
    finally:
        psutil.Process(pid).kill()
        while living(token):
            time.sleep(0.02)


def test_a_detached_program_that_cannot_start_says_why(tmp_path):
    with pytest.raises(InfrastructureError, match="No such file"):
        spawn_detached(["/no/such/program"], log=tmp_path / "log")


def test_a_child_is_killed_with_its_group_at_the_end_of_its_block(tmp_path, token):
    program = f"import os, time\nos.fork()\ntime.sleep(600)  # {token}"
    null = os.open(os.devnull, os.O_WRONLY)
    with Child([sys.executable, "-c", program], env={}, cwd=tmp_path, output_fd=null) as child:
        assert child.wait(0.05) is None
        assert child.poll() is None
    os.close(null)
    assert child.poll() == -9
