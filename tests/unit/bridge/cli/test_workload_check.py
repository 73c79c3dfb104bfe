"""`kakeya-runner workload check` runs the program for a second, and says in one line what that shows."""

from __future__ import annotations

import shlex

import pytest

from bridge.cli.host.main import main
from tests.support.waiting import until
from tests.support.workload_folder import TRAIN, write, write_workload

NOT_OVER = "still ran after 1s"


def checked(folder, capsys):
    """Return the exit code of a check, and its lines."""
    code = main(["workload", "check", str(folder)])
    return code, capsys.readouterr().out.splitlines()


def checked_to_the_end(folder, capsys):
    """Return what a check says of a program that ends by itself.

    A busy machine may not get so far in the second that it has, and is asked again.
    """

    def ended():
        code, lines = checked(folder, capsys)
        return None if any(NOT_OVER in line for line in lines) else (code, lines)

    return until(ended, why="no check saw the program's end")


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        ("import time\ntime.sleep(60)  # KAKEYA_SEED\n", 0, NOT_OVER),
        ("import nosuchmodule  # KAKEYA_SEED\n", 1, "named 'nosuchmodule'; next: name the Python that has it"),
        ("print('KAKEYA_SEED')\n", 1, "wrote no report to the file that KAKEYA_REPORT names; next: write it there, or"),
    ],
)
def test_what_a_second_shows_is_one_line(tmp_path, monkeypatch, capsys, program, code, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = write_workload(tmp_path)
    write(folder / "train.py", program)
    ended, lines = (checked if words == NOT_OVER else checked_to_the_end)(folder, capsys)
    assert ended == code
    (line,) = [line for line in lines if line.split()[1] == "my-train"]
    assert words in line


def as_it_is(folder, number, script, more=""):
    """Write a workload whose program knows nothing of Kakeya."""
    folder.mkdir(mode=0o755)
    write(folder / "run.sh", f"#!/bin/sh\n{script}\n")
    write(
        folder / "workload.toml",
        f'schema = 1\nname = "{folder.name}"\n[presets.{folder.name}]\ndescription = "x"\nargv = ["run.sh"]\n'
        f'[metrics.loss]\nunit = "1"\nbounds = [0, 100]\nrepeats = 1\nnumber = {number}\n{more}',
    )
    return folder


PRINTED = '{ stdout = "loss: ([0-9.]+)" }'
ROW = '{ file = "log.csv", column = "loss" }'
READ = [
    (PRINTED, "echo hello", "", "matches nothing in 1 lines of stdout; write one that matches exactly one"),
    (PRINTED, "echo loss: 1 >&2", "", "matches exactly one; stderr is not read; next:"),
    (PRINTED, "true", "", "matches nothing in 0 lines of stdout"),
    (PRINTED, "echo loss: 1; echo loss: 2", "", "matches 2 places (loss: 1, loss: 2) in 2 lines of stdout"),
    ('{ stdout = "loss: (.*)" }', "echo loss: nan", "", "nan at pattern 'loss: (.*)' in stdout is not finite"),
    ('{ stdout = "loss: (.*)" }', "echo loss: low", "", "\"low\" at pattern 'loss: (.*)' in stdout is no number"),
    (PRINTED, "echo loss: 500", "", "loss is 500, outside of bounds = [0.0, 100.0]: a run would be rejected; next:"),
    ('{ pointer = "/a/b" }', "echo '{\"a\": {\"c\": 1}}'", "", "nothing is at /a/b of stdout; where 'b' is looked for"),
    ('{ pointer = "/a" }', "echo '{\"a\": \"x\"}'", "", '"x" at /a of stdout is no number'),
    ('{ pointer = "/a" }', "echo hello", "", "stdout is no JSON"),
    (ROW, "echo step,los > log.csv; echo 1,2 >> log.csv", "", "has no column 'loss' with a row; it has step, los"),
    (ROW, "echo step,loss > log.csv", "", "has no column 'loss' with a row; it has no rows"),
    (ROW, "echo loss > log.csv; echo x >> log.csv", "", "\"x\" at 'loss' of log.csv is no number"),
    (ROW, "echo loss > log.txt", "", "the program wrote no log.csv; it wrote log.txt"),
    (ROW, "truncate -s 2G log.csv", "", "log.csv has 2147483648 bytes, at most 16777216 are read"),
    (PRINTED, "echo boom >&2; exit 3", "", "ended with 3 within 1s, without a sandbox: boom"),
    (PRINTED, "echo loss: 1", '[outputs]\nkeep = ["plot.png"]\n', "plot.png is to be kept; the program wrote no file"),
    (
        PRINTED, "echo loss: 1; truncate -s 2G plot.png", '[outputs]\nkeep = ["plot.png"]\n',
        "plot.png: 2147483648 bytes, at most 16777216 are kept; make it smaller",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("number", "script", "more", "words"), READ, ids=[words for *_, words in READ])
def test_a_number_that_is_not_there_is_said_before_anybody_may_ask(
    tmp_path, monkeypatch, capsys, number, script, more, words
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = as_it_is(tmp_path / "mine", number, script, more)
    ended, printed = checked_to_the_end(folder, capsys)
    lines = [line for line in printed if words in line]
    assert len(lines) == 1
    assert ended == (0 if lines[0].startswith("warn") else 1)
    assert " next: " in lines[0]


def test_a_file_in_the_report_folder_that_nobody_declared_is_said_before_a_run_is_rejected_for_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = write_workload(tmp_path)
    write(folder / "train.py", f'{TRAIN}Path(os.environ["KAKEYA_OUT"], "notes.txt").write_text("x")\n')
    ended, printed = checked_to_the_end(folder, capsys)
    [line] = [line for line in printed if line.startswith("fail")]
    assert ended == 1
    assert "notes.txt is in KAKEYA_OUT and not in [outputs] keep: a run would be rejected; next: add it" in line


STILL_RUNS = "import time\ntime.sleep(60)  # KAKEYA_SEED\n"


@pytest.mark.parametrize("place", ["elsewhere", "workloads"])
def test_the_command_that_is_printed_next_allows_the_folder_that_was_checked(tmp_path, monkeypatch, capsys, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = write_workload(tmp_path / place)
    write(folder / "train.py", STILL_RUNS)

    assert main(["workload", "check", str(folder)]) == 0
    printed = capsys.readouterr().out.rpartition("next: kakeya-runner ")[2]

    assert main(shlex.split(printed)) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(folder)


def test_a_folder_that_was_named_by_its_path_is_found_by_what_new_prints_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write(tmp_path / "quick.sh", "#!/bin/sh\necho loss: 1\n")
    (tmp_path / "quick.sh").chmod(0o755)

    assert main(["workload", "new", "./bench/quick", "--from", "quick.sh"]) == 0
    printed = capsys.readouterr().err.rpartition("kakeya-runner ")[2]

    assert main(shlex.split(printed)) == 0
    assert f"{tmp_path / 'bench' / 'quick'}: offers quick" in capsys.readouterr().out


def test_another_folder_of_the_name_is_not_taken_for_the_workload(tmp_path, monkeypatch, capsys):
    """As a project has one whose program is ``my-train``: `check` said to write it anew, and `new` to check it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "my-train").mkdir()
    folder = write_workload(tmp_path / "workloads")
    write(folder / "train.py", STILL_RUNS)

    assert main(["workload", "check", "my-train"]) == 0
    assert f"ok    {folder}: offers my-train; next: kakeya-runner workload allow my-train" in capsys.readouterr().out
