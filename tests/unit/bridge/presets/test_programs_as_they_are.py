"""A program as it is: what runs it, where its numbers are read, what is kept, and one line for what is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from bridge.presets.workloads.folder import read_folder
from bridge.presets.workloads.problems import problems
from tests.drift import ROOT
from tests.support.workload_folder import INTERPRETER, edit, write, write_workload

SHELL = """#!/bin/sh
echo "accuracy: 0.$2"
printf 'step,loss\\n1,0.9\\n2,0.25\\n' > log.csv
printf '{"test": {"f1": 0.75, "name": "x"}}' > metrics.json
printf picture > plot.png
cat words.txt
"""
NUMBERS = {
    "stdout": ('number = { stdout = "^accuracy: ([0-9.]+)$" }', 0.07),
    "json": ('number = { file = "metrics.json", pointer = "/test/f1" }', 0.75),
    "csv": ('number = { file = "log.csv", column = "loss" }', 0.25),
    "first": ('number = { file = "log.csv", column = "loss", row = "first" }', 0.9),
    "file": ('number = { file = "words.made", pattern = "([0-9]+) words" }', None),
}


def as_it_is(top, *numbers, keep=("plot.png",), program=SHELL, repeats=1):
    """Write a workload whose program is a shell script that knows nothing of Kakeya; return its folder."""
    folder = top / "bench"
    folder.mkdir()
    folder.chmod(0o755)
    metrics = "".join(
        f'[metrics.m{at}]\n{number}\nunit = "1"\nrepeats = {repeats}\n' for at, number in enumerate(numbers)
    )
    names = ", ".join(f'"{name}"' for name in keep)
    toml = (
        'schema = 1\nname = "bench"\n[presets.bench]\ndescription = "x"\nargv = ["run.sh", "--seed", "{seed}"]\n'
        f"{metrics}[outputs]\nkeep = [{names}]\n"
    )
    for name, text in {"workload.toml": toml, "run.sh": program, "words.txt": "read beside the program\n"}.items():
        write(folder / name, text)
    return folder


BEHIND_LANDLOCK = """
import os, platform, sys
sys.path.insert(0, {root!r})
from bridge.executor.sandbox import seccomp
from tests.integration.setup.protections import load
load(seccomp.program(platform.machine(), alone=True))
os.execv(sys.argv[1], sys.argv[1:])
"""


def run_once(folder, top, before=()):
    """Start the command of the preset as a runner does; return how it ended and the folder of its repeat."""
    (command,) = read_folder(folder, INTERPRETER).presets["bench"].commands
    out, tmp = top / "out", top / "tmp"
    out.mkdir()
    tmp.mkdir()
    environment = {
        "KAKEYA_OUT": str(out), "KAKEYA_REPORT": str(out / "report.json"), "KAKEYA_SEED": "07", "TMPDIR": str(tmp),
        "PATH": os.environ["PATH"],
    }  # fmt: skip
    argv = [sys.executable if word == "${interpreter}" else word for word in command.argv]
    ran = subprocess.run(
        [*before, *argv], env=environment, capture_output=True, text=True, timeout=240, check=False, cwd=tmp
    )
    return ran, out


def test_a_shell_script_gives_several_numbers_and_a_picture(tmp_path):
    numbers = [NUMBERS[name] for name in ("stdout", "json", "csv", "first")]
    folder = as_it_is(tmp_path, *(number for number, _ in numbers))
    assert [check for check in problems(folder, INTERPRETER) if check.level == "fail"] == []
    ran, out = run_once(folder, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "accuracy: 0.07\nread beside the program\n"
    report = json.loads((out / "report.json").read_text())
    assert report == {"metrics": {f"m{at}": value for at, (_, value) in enumerate(numbers)}}
    assert (out / "plot.png").read_text() == "picture"
    roles = {program.role for program in read_folder(folder, INTERPRETER).presets["bench"].workload.programs}
    assert roles == {"folder", "interpreter", "reader"}


@pytest.mark.skipif(sys.platform != "linux", reason="filters of system calls")
def test_a_program_runs_behind_the_filter_that_lets_nobody_change_a_mode_or_a_time(tmp_path):
    folder = as_it_is(tmp_path, NUMBERS["stdout"][0])
    (folder / "words.txt").chmod(0o444)
    ran, out = run_once(folder, tmp_path, [sys.executable, "-c", BEHIND_LANDLOCK.format(root=str(ROOT))])
    assert ran.returncode == 0, ran.stderr
    assert json.loads((out / "report.json").read_text()) == {"metrics": {"m0": 0.07}}
    assert (out / "plot.png").read_text() == "picture"


def test_files_alone_are_a_result(tmp_path):
    folder = as_it_is(tmp_path, keep=("plot.png", "log.csv", "never.png"))
    assert [check for check in problems(folder, INTERPRETER) if check.level == "fail"] == []
    ran, out = run_once(folder, tmp_path)
    assert (ran.returncode, json.loads((out / "report.json").read_text())) == (0, {"metrics": {}})
    assert {path.name for path in out.iterdir()} == {"report.json", "plot.png", "log.csv"}
    assert ran.stderr == "never.png: the program did not write it, so it is not kept\n"


@pytest.mark.parametrize(
    ("number", "line"),
    [
        ('{ stdout = "loss: ([0-9.]+)" }', "pattern 'loss: ([0-9.]+)' matches nothing in 2 lines of stdout"),
        ('{ stdout = "([a-z]+)" }', "matches 5 places (accuracy, read, beside)"),
        ('{ stdout = "(acc)uracy" }', "\"acc\" at pattern '(acc)uracy' in stdout is no number"),
        ('{ pointer = "/a" }', "stdout is no JSON"),
        ('{ file = "none.json", pointer = "/a" }', "wrote no none.json; it wrote log.csv, metrics.json, plot.png"),
        ('{ file = "words.txt", pattern = "(1)" }', "wrote no words.txt"),
        ('{ file = "metrics.json", pointer = "/test/loss" }', "where 'loss' is looked for there is f1, name"),
        ('{ file = "metrics.json", pointer = "/test/name" }', '"x" at /test/name of metrics.json is no number'),
        ('{ file = "log.csv", column = "acc" }', "has no column 'acc' with a row; it has step, loss"),
    ],
)  # fmt: skip
def test_a_number_that_is_not_there_is_one_line(tmp_path, number, line):
    ran, out = run_once(as_it_is(tmp_path, f"number = {number}".replace("\\", "\\\\")), tmp_path)
    assert ran.returncode == 1
    (message,) = ran.stderr.splitlines()
    assert message.startswith("error: m0: ")
    assert line in message
    assert not (out / "report.json").exists()
    assert (out / "plot.png").exists()


def test_a_picture_that_is_too_large_stays_behind_and_the_number_comes(tmp_path):
    large = SHELL.replace("printf picture > plot.png", "truncate -s 2G plot.png")
    ran, out = run_once(as_it_is(tmp_path, NUMBERS["json"][0], program=large), tmp_path)
    assert ran.returncode == 0
    assert "plot.png: 2147483648 bytes, at most 16777216 are kept" in ran.stderr
    assert {path.name for path in out.iterdir()} == {"report.json"}


def test_json_that_is_too_deep_to_read_is_one_line(tmp_path):
    deep = "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\\\0' '['\n"
    ran, _ = run_once(as_it_is(tmp_path, 'number = { pointer = "/a" }', program=deep, keep=()), tmp_path)
    (message,) = ran.stderr.splitlines()
    assert message.startswith("error: m0: stdout is no JSON: ")


def test_a_file_that_is_read_is_a_copy_and_one_that_is_changed_is_written(tmp_path):
    changes = "#!/bin/sh\ntest ! -L words.txt && echo 3 more >> words.txt\n"
    folder = as_it_is(tmp_path, 'number = { file = "words.txt", pattern = "([0-9]+) more" }', program=changes)
    ran, out = run_once(folder, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads((out / "report.json").read_text()) == {"metrics": {"m0": 3.0}}
    assert (folder / "words.txt").read_text() == "read beside the program\n"


def test_a_mark_at_the_beginning_of_a_text_is_of_no_name(tmp_path):
    marked = "#!/bin/sh\nprintf '\\357\\273\\277loss,x\\n0.25,1\\n' > log.csv\n"
    ran, out = run_once(as_it_is(tmp_path, NUMBERS["csv"][0], program=marked, keep=()), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads((out / "report.json").read_text()) == {"metrics": {"m0": 0.25}}


def test_a_file_that_comes_out_as_it_lay_there_is_written_as_well(tmp_path):
    folder = as_it_is(tmp_path, NUMBERS["json"][0])
    write(folder / "metrics.json", '{"test": {"f1": 0.75, "name": "x"}}')
    write(folder / "plot.png", "picture")
    ran, out = run_once(folder, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads((out / "report.json").read_text()) == {"metrics": {"m0": 0.75}}
    assert (out / "plot.png").read_text() == "picture"


def test_a_program_that_fails_ends_the_run_as_it_ended(tmp_path):
    ran, _ = run_once(as_it_is(tmp_path, NUMBERS["json"][0], program="#!/bin/sh\nexit 7\n"), tmp_path)
    assert (ran.returncode, ran.stderr) == (7, "")


def test_a_program_that_a_signal_ends_is_told_by_it(tmp_path):
    ran, _ = run_once(as_it_is(tmp_path, NUMBERS["json"][0], program="#!/bin/sh\nkill -SEGV $$\n"), tmp_path)
    assert ran.returncode == 139
    assert ran.stderr == f"error: signal 11 ended it: {signal.strsignal(11)}\n"


@pytest.mark.ci
def test_what_a_program_left_with_its_output_is_waited_for_and_told(tmp_path):
    left = SHELL.replace("cat words.txt", "(sleep 5; echo loss: 4) &")
    ran, out = run_once(as_it_is(tmp_path, 'number = { stdout = "loss: ([0-9.]+)" }', program=left), tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == "the program ended; what it started still has its output, and is waited for\n"
    assert json.loads((out / "report.json").read_text()) == {"metrics": {"m0": 4.0}}


@pytest.mark.parametrize(
    ("first", "runs"),
    [
        ("#!/bin/sh -e", ("/bin/sh", "-e")),
        ("#!/usr/bin/env perl", ("/usr/bin/perl",)),
        ("#!/usr/bin/awk -f", ("/usr/bin/awk", "-f")),
        ("#!/usr/bin/env -S python3 -u", (INTERPRETER, "-S")),
    ],
)
def test_what_a_script_names_in_its_first_line_runs_it(tmp_path, first, runs):
    folder = as_it_is(tmp_path, NUMBERS["json"][0], program=f"{first}\n")
    (command,) = read_folder(folder, INTERPRETER).presets["bench"].commands
    words = command.argv[command.argv.index("--@run") + 1 :]
    assert words[: len(runs)] == runs
    assert words[len(runs) :] == (str(folder / "run.sh"), "--seed", "KAKEYA_SEED")


def test_a_program_of_the_system_is_known_by_its_own_digest(tmp_path):
    folder = as_it_is(tmp_path, NUMBERS["json"][0])
    text = (folder / "workload.toml").read_text().replace('"run.sh", "--seed", "{seed}"', '"/usr/bin/make", "bench"')
    write(folder / "workload.toml", text)
    assert [check for check in problems(folder, INTERPRETER) if check.level == "fail"] == []
    programs = read_folder(folder, INTERPRETER).presets["bench"].workload.programs
    assert [program.path for program in programs if program.role == "program"] == ["/usr/bin/make"]


@pytest.mark.parametrize("way", ["a finder", "a line"])
def test_a_package_that_is_installed_editable_is_digested_where_it_is_written(tmp_path, way):
    top = tmp_path.resolve()
    package, site = top / "project" / "mine", top / "venv" / "lib" / "python3.11" / "site-packages"
    for place in (package, site, top / "venv" / "bin"):
        place.mkdir(parents=True)
    write(top / "venv" / "pyvenv.cfg", "home = /usr/bin\n")
    (top / "venv" / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    write(package / "__init__.py", "SPEED = 1\n")
    finder = f"import sys\n\nMAPPING: dict[str, str] = {{'mine': {str(package)!r}}}\nNAMESPACES: dict = {{}}\n"
    write(site / "__editable___mine_0_1_finder.py", finder if way == "a finder" else "")
    write(site / "__editable__.mine-0.1.pth", "import sys\n" if way == "a finder" else f"{package.parent}\n")
    folder = write_workload(top)
    edit(folder, (f'"{INTERPRETER}"', f'"{top}/venv/bin/python"'))

    def workload():
        return read_folder(folder, INTERPRETER).presets["my-train"].workload

    first = workload()
    assert [program.path for program in first.programs if program.role == "environment"] == [str(site), str(package)]
    write(package.parent / "notes.txt", "of no program\n")
    assert workload() == first
    write(package / "__init__.py", "SPEED = 2\n")
    assert workload().digest != first.digest
