"""Whatever a job does, its bounds hold, the reason is right and nobody of it is left."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from bridge.limits import MIB
from bridge.records import EnvironmentVariable
from bridge.system.process import Child
from tests.fakes.local_jobs import Jobs, living

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the hostile programs are written for Linux")

FORKS = """
import os, time
for kind in ("child", "grandchild", "own session", "own group"):
    if os.fork() == 0:
        if kind == "grandchild" and os.fork():
            os._exit(0)
        if kind == "own session":
            os.setsid()
            if os.fork():
                os._exit(0)
        if kind == "own group":
            os.setpgid(0, 0)
        time.sleep(600)
"""
NO_TERM = "import signal\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n"


def no_survivors(execution) -> None:
    assert [command.survivors for command in execution.commands] == [0] * len(execution.commands)


def limits_of(execution) -> list[str]:
    return [hit.limit for hit in execution.limits_hit]


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
import signal, sys, time
def end(*_):
    print("cleaned up", flush=True)
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
    execution = jobs.run(f"import os\nwhile True:\n  try: os.fork()\n  except OSError: pass  # {token}", processes=40)

    assert execution.ending == "limit"
    assert limits_of(execution)[0] == "processes"
    no_survivors(execution)


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


def test_a_log_flood_is_cut_in_the_middle_and_counted(jobs, token):
    program = f"""
print("the beginning", flush=True)
for _ in range(20000): print("x" * 199)
print("the end of {token}")
"""
    execution = jobs.run(program, log_bytes=64 * 1024)

    assert (execution.ending, execution.program_exit) == ("exited", 0)
    assert len(execution.log) <= 64 * 1024
    assert execution.log.startswith(b"the beginning")
    assert execution.log.rstrip().endswith(token.encode())
    assert execution.log_truncated_bytes > 3_900_000
    assert f"{execution.log_truncated_bytes} bytes of log cut here".encode() in execution.log
    assert [(hit.limit, hit.action) for hit in execution.limits_hit] == [("log_bytes", "truncated")]
    assert bytes(jobs.heard) == execution.log


def test_an_endless_log_does_not_outlast_the_wall_limit(jobs, token):
    execution = jobs.run(f"while True: print('x' * 1000)  # {token}", wall_s=0.8, log_bytes=8192)

    assert execution.ending == "timed_out"
    assert len(execution.log) <= 8192
    no_survivors(execution)


def test_closing_every_descriptor_hides_nothing(jobs, token):
    execution = jobs.run(f"import os, time\nos.closerange(0, 64)\ntime.sleep(600)  # {token}", wall_s=0.8)

    assert (execution.ok, execution.ending) == (True, "timed_out")
    no_survivors(execution)


def test_links_devices_pipes_and_sockets_are_left_behind(jobs, token):
    program = f"""
import os, socket, stat
out = os.environ["KAKEYA_OUT"]
def attempt(action, *arguments):
    try: action(*arguments)
    except OSError as error: print(error)
os.symlink("/etc/shadow", out + "/link.json")
os.symlink("/etc", out + "/folder")
os.mkfifo(out + "/pipe.json")
attempt(os.mknod, out + "/device.json", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
attempt(os.mknod, out + "/disk.json", 0o600 | stat.S_IFBLK, os.makedev(8, 0))
server = socket.socket(socket.AF_UNIX)
os.chdir(out)
server.bind("socket.json")
open("twice", "w").write("x")
attempt(os.link, "twice", "twice-again")
os.mkdir(".github")
open(".github/workflow.yml", "w").write("on: push")
open(".gitattributes", "w").write("* filter=x")
os.mkdir("a")
open("a/good.json", "w").write("{{}}")
print("{token}")
"""
    execution = jobs.run(program, outputs=("link.json", "a/good.json"))

    assert execution.ok
    assert list(execution.reports) == ["a/good.json"]
    assert [(output.path, output.bytes, output.after_start) for output in execution.outputs] == [
        ("a/good.json", 2, True)
    ]
    for name in ("link.json", "folder", "pipe.json", "socket.json", "twice", ".github", ".gitattributes"):
        assert f"left behind: '{name}'".encode() in execution.log


def test_a_report_directory_swapped_for_another_one_gives_nothing(plain, tmp_path, token):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "report.json").write_text("{}")
    program = f"""
import os
out = os.environ["KAKEYA_OUT"]
os.rename(out, out + "-old")
os.symlink("{tmp_path}/elsewhere", out)  # {token}
"""
    execution = plain.run(program)

    assert execution.ok
    assert execution.reports == {}
    assert b"the report directory cannot be read" in execution.log


def test_terminal_escapes_stay_in_the_raw_log_for_its_readers_to_strip(jobs, token):
    execution = jobs.run(f"print('\\x1b]0;owned\\x07\\x1b[2J{token}')")

    assert f"\x1b]0;owned\x07\x1b[2J{token}".encode() in execution.log


def test_secrets_never_reach_log_or_reports_in_any_encoding_or_chunking(jobs, token):
    secret = "tr0ub4dor&3/+=?"
    program = f"""
import base64, os, sys, time, urllib.parse
secret = os.environ["API_KEY"]
assert len(secret) == {len(secret)}
raw = secret.encode()
shown = [raw, base64.b64encode(raw), base64.b64encode(b"x" + raw + b"yz"), base64.urlsafe_b64encode(b"xy" + raw),
         raw.hex().encode(), raw.hex().upper().encode(), urllib.parse.quote(secret, safe="").encode()]
for text in shown:
    for cut in range(len(text)):
        os.write(1, text[:cut])
        if cut % 7 == 0: time.sleep(0.002)
        os.write(1, text[cut:] + b"\\n")
with open(os.environ["KAKEYA_OUT"] + "/report.json", "w") as report:
    report.write('{{"key": "' + secret + '"}}')
open(os.environ["KAKEYA_OUT"] + "/" + raw.hex(), "w").close()
mark = '{{"event":"start","sample":"' + "".join("\\\\u%04x" % ord(char) for char in secret) + '"}}\\n'
os.write(int(os.environ["KAKEYA_SAMPLE_PIPE"]), mark.encode())
print("done {token}")
"""
    variable = EnvironmentVariable(name="API_KEY", value=secret, origin="policy", secret=True)
    execution = jobs.run(program, environment=[variable])

    assert execution.program_exit == 0
    assert f"done {token}".encode() in execution.log
    for shown in (secret, secret.encode().hex(), secret.encode().hex().upper()):
        assert shown.encode() not in execution.log
    assert execution.redactions > 100
    assert execution.reports == {}
    assert limits_of(execution) == ["secret_in_report", "secret_in_report"]
    assert (execution.sample_marks, execution.sample_marks_dropped) == ((), 1)


def test_marks_are_stamped_on_arrival_and_bad_ones_are_counted(jobs, token):
    program = f"""
import json, os, time
pipe = int(os.environ["KAKEYA_SAMPLE_PIPE"])
def mark(**fields): os.write(pipe, json.dumps(fields).encode() + b"\\n")
mark(event="start", sample="0/0/a/p")
time.sleep(1.0)
mark(event="first_token", sample="0/0/a/p")
mark(event="end", sample="0/0/a/p", token_digest="{"a" * 64}")
os.write(pipe, b"no json\\n" + b"[" * 300 + b"\\n" + b"x" * 5000 + b"\\n")
mark(event="party", sample="0/0/a/p")
mark(event="start", sample="s", extra=1)
mark(event="end", sample="s", token_digest="short")
os.write(pipe, b'{{"event":"start","sample":"unfinished')  # {token}
"""
    execution = jobs.run(program)

    assert [(mark.event, mark.token_digest) for mark in execution.sample_marks] == [
        ("start", None),
        ("first_token", None),
        ("end", "a" * 64),
    ]
    first, second, _ = (mark.t_s for mark in execution.sample_marks)
    assert 0.3 <= second - first <= execution.wall_s
    assert execution.sample_marks_dropped == 7


def test_killing_its_keeper_ends_the_job_and_is_told(plain, token):
    program = f"""
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(0.5)
        os.kill(keeper := os.getppid(), signal.SIGKILL)
        os.execve("/bin/sleep", ["sleep", "600"], {{}})
    os._exit(0)
time.sleep(600)  # {token}
"""
    before = living("sleep\0600")
    execution = plain.run(program)

    assert not execution.ok
    assert "the process that held the command was killed" in execution.message
    assert living("sleep\0600") == before
    no_survivors(execution)


def test_stopping_its_keeper_does_not_outlast_the_limits(plain, token):
    program = f"import os, signal, time\nos.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(600)  # {token}"
    execution = plain.run(program, wall_s=0.8)

    assert execution.ending == "timed_out"
    no_survivors(execution)


def test_a_dead_runner_takes_its_job_with_it(plain, token, tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(Path.cwd())!r})
from pathlib import Path
from tests.fakes.local_jobs import Jobs
from bridge.executor.local import LocalExecutor
from bridge.system.clock import SystemClock
base = Path({str(tmp_path)!r}) / "base"
base.mkdir()
job = "import os, time; os.setsid() if os.fork() == 0 else None; print('{token}', flush=True); time.sleep(600)"
Jobs(LocalExecutor(SystemClock()), base).run(job)
"""
    null = os.open(os.devnull, os.O_WRONLY)
    with Child([sys.executable, "-c", program], env=dict(os.environ), cwd=tmp_path, output_fd=null) as runner:
        deadline = time.monotonic() + 60
        while len(living(token)) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(living(token)) == 3
        runner.kill()
        while living(token) and time.monotonic() < deadline:
            time.sleep(0.02)
    os.close(null)
    assert living(token) == []


def test_leftovers_are_found_by_marker_when_even_the_keeper_is_gone(plain, token):
    """A restarted runner kills by the recorded id and start time, and by marker what is no longer below that id."""
    done: list[int] = []

    def stop():
        if plain.heard and not done:
            pid, started, marker = plain.started[-1]
            keeper = psutil.Process(pid)
            keeper.suspend()
            done.append(plain.executor.kill_leftovers(pid, started, marker))
        return

    execution = plain.run(f"{FORKS}\nprint('{token}', flush=True)\ntime.sleep(600)", stop=stop)

    assert done[0] >= 6
    assert not execution.ok
    assert not list(Path("/sys/fs/cgroup").glob(f"**/kakeya-{plain.started[-1][2]}-*"))


def test_a_process_that_only_reuses_the_id_is_left_alone(plain, token):
    assert plain.executor.kill_leftovers(os.getpid(), 12345.0, "nobody-has-this-marker") == 0


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


def test_times_agree_with_each_other(jobs, token):
    program = """
import json, os, time
pipe = int(os.environ["KAKEYA_SAMPLE_PIPE"])
for _ in range(200): os.write(pipe, json.dumps({"event": "start", "sample": "s"}).encode() + b"\\n")
time.sleep(0.6)
os.write(pipe, json.dumps({"event": "end", "sample": "s"}).encode() + b"\\n")
"""
    execution = jobs.run(program, f"print('{token}')")
    first, second = execution.commands

    assert 0 <= first.started_s < first.ended_s <= second.started_s < second.ended_s == execution.wall_s
    assert len(execution.sample_marks) == 201
    assert first.started_s <= execution.sample_marks[0].t_s <= execution.sample_marks[-1].t_s <= first.ended_s
    assert execution.sample_marks[-1].t_s - execution.sample_marks[0].t_s >= 0.2
    assert all(sample.t_s <= execution.wall_s for sample in execution.telemetry.samples)


def test_a_hook_that_raises_leaves_nothing_running(jobs, token):
    def stop():
        if jobs.heard:
            raise LookupError("the runner's own trouble")

    with pytest.raises(LookupError, match="own trouble"):
        jobs.run(f"{FORKS}\nprint('{token}', flush=True)\ntime.sleep(600)", stop=stop)


def test_a_message_is_one_printable_line_whatever_it_quotes(plain):
    execution = plain.run(argv=[("/no/such\x1b[2J\nprogram",)])

    assert (execution.ok, execution.ending) == (False, "not_started")
    assert execution.message.isprintable()
    assert "No such file" in execution.message


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
