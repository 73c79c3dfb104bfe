"""Whatever a job writes, only what may leave leaves, and nothing of it is believed unchecked."""

from __future__ import annotations

import sys

import pytest

from bridge.records.jobspec import EnvironmentVariable
from tests.integration.executor.hostile import limits_of, no_survivors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the hostile programs are written for Linux")
UNTIL_READ = """
import fcntl, struct, termios, time
def until_read(pipe):
    while struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]: time.sleep(0.01)
"""
"""What a program waits with until nothing of what it wrote is left in a pipe."""


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

    def swap():
        out = plain.directory.out
        if plain.heard and not out.is_symlink():
            out.rename(out.with_name("out-old"))
            out.symlink_to(tmp_path / "elsewhere")
            (plain.directory.work / "go-on").touch()

    # From outside: a user of its own may not do it, the runner's may.
    program = f"""
import os, time
print("here", flush=True)
while not os.path.exists("go-on"): time.sleep(0.02)  # {token}
"""
    execution = plain.run(program, stop=swap)

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
    program = f"""{UNTIL_READ}
import json, os, time
pipe = int(os.environ["KAKEYA_SAMPLE_PIPE"])
def mark(**fields): os.write(pipe, json.dumps(fields).encode() + b"\\n")
mark(event="start", sample="0/0/a/p")
until_read(pipe)
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


def test_times_agree_with_each_other(jobs, token):
    program = f"""{UNTIL_READ}
import json, os, time
pipe = int(os.environ["KAKEYA_SAMPLE_PIPE"])
def mark(event): os.write(pipe, json.dumps(dict(event=event, sample="s")).encode() + b"\\n")
for _ in range(200): mark("start")
until_read(pipe)
time.sleep(0.6)
mark("end")
"""
    execution = jobs.run(program, f"print('{token}')")
    first, second = execution.commands

    assert 0 <= first.started_s < first.ended_s <= second.started_s < second.ended_s == execution.wall_s
    assert len(execution.sample_marks) == 201
    assert first.started_s <= execution.sample_marks[0].t_s <= execution.sample_marks[-1].t_s <= first.ended_s
    assert execution.sample_marks[-1].t_s - execution.sample_marks[0].t_s >= 0.2
    assert all(sample.t_s <= execution.wall_s for sample in execution.telemetry.samples)


def test_a_message_is_one_printable_line_whatever_it_quotes(plain):
    execution = plain.run(argv=[("/no/such\x1b[2J\nprogram",)])

    assert (execution.ok, execution.ending) == (False, "not_started")
    assert execution.message.isprintable()
    assert "No such file" in execution.message


def test_a_link_in_the_place_of_the_next_repeats_folder_opens_none_of_the_host(jobs, tmp_path, token):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    plant = f"""
import os
os.symlink({str(private)!r}, os.path.join(os.path.dirname(os.environ["KAKEYA_OUT"]), "repeat-1"))
"""
    write = f"""
import os
open(os.environ["KAKEYA_REPORT"], "w").write("{{}}")  # {token}
"""
    spec = jobs.spec(plant, write, outputs=("repeat-1/report.json",))
    commands = [step.evolve(folder=f"repeat-{place}") for place, step in enumerate(spec.commands)]
    execution = jobs.execute(spec.evolve(commands=tuple(commands)))

    assert execution.ok, execution.message
    assert private.stat().st_mode & 0o777 == 0o700
    assert list(private.iterdir()) == []
    assert set(execution.reports) == {"repeat-1/report.json"}
