"""`workload new --from`: what becomes of a program's options, which number is meant, what its folder says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bridge.errors import UsageError
from bridge.presets.workloads.folder import read_folder
from bridge.presets.workloads.options import options_of
from bridge.presets.workloads.problems import problems
from bridge.presets.workloads.reading_program import read_number
from bridge.presets.workloads.template import write_folder
from tests.support.workload_folder import INTERPRETER

ARGPARSE = """
import argparse, json, random, sys
p = argparse.ArgumentParser()
p.add_argument("data", nargs="?")
p.add_argument("--lr", "-l", type=float, default=0.1, help="learning rate (default: %(default)s)")
p.add_argument("--epochs", type=int, default=3)
p.add_argument("--model", choices=["small", "large"], default="small", help="which one")
p.add_argument("--tag", default="base")
p.add_argument("--fast", action="store_true", help="skip the checks")
p.add_argument("--seed", type=int, default=0)
p.add_argument("--layers", type=int, nargs="+")
p.add_argument("--config", type=argparse.FileType())
o = p.parse_args()
random.seed(o.seed)
for epoch in range(o.epochs):
    print("epoch", epoch, "loss:", 1 / (epoch + 1))
    print(f"loss: {1 / (epoch + 1)}")
print(f"accuracy = {random.random()}")
open("curve.csv", "w").write("step,value\\n1,2.5\\n")
"""
CLICK = """
@click.command()
@click.option("--rate", default=0.5, help="how fast")
@click.option("--kind", type=click.Choice(["a", "b"]), default="b")
@click.option("--verbose/--quiet", is_flag=True)
@click.option("--many", multiple=True, default=[])
def main(): pass
"""


def last(candidates):
    return candidates[-1] if candidates else None


def written(top, name, sources, choose=last, **options):
    folder = top / name
    made = write_folder(folder, sources, python=INTERPRETER, host_python=INTERPRETER, choose=choose, **options)
    return folder, made, tomllib.loads((folder / "workload.toml").read_text())


def program(top, name, text, mode=0o644):
    path = top / name
    path.write_text(text)
    path.chmod(mode)
    return path


def test_every_option_becomes_a_parameter_or_is_named(tmp_path):
    source = program(tmp_path, "train.py", ARGPARSE)
    folder, made, file = written(tmp_path, "digits", [source], lambda numbers: numbers[1])
    preset = file["presets"]["digits"]
    assert preset["argv"] == [
        "train.py", "--lr", "{lr}", "--epochs", "{epochs}", "--model", "{model}", "--tag", "{tag}", "{fast}",
        "--seed", "{seed}",
    ]  # fmt: skip
    assert preset["params"]["lr"]["help"] == "learning rate"
    assert preset["params"]["model"] == {"type": "choice", "choices": ["small", "large"], "default": "small",
                                         "help": "which one"}  # fmt: skip
    assert preset["params"]["fast"] == {"type": "flag", "token": "--fast", "help": "skip the checks"}
    for line in ("left out: data: it stands", "left out: --layers: it takes", "left out: --config: it has no default",
                 "--seed is given the seed", "ran once, without a sandbox: it ended well"):  # fmt: skip
        assert any(note.startswith(line) for note in made.notes), made.notes
    assert [check for check in problems(folder, INTERPRETER) if check.level == "fail"] == []


def test_the_number_of_the_last_line_of_a_label_is_read_and_the_others_are_comments(tmp_path):
    folder, _, file = written(tmp_path, "digits", [program(tmp_path, "train.py", ARGPARSE)], lambda many: many[1])
    assert list(file["metrics"]) == ["loss"]
    assert (file["metrics"]["loss"]["better"], file["metrics"]["loss"]["repeats"]) == ("lower", 6)
    assert file["outputs"]["keep"] == ["curve.csv"]
    text = (folder / "workload.toml").read_text()
    assert "# [metrics.accuracy]" in text
    assert "# [metrics.value]" in text
    (folder / "workload.toml").write_text(text.replace("# ", ""))
    metrics = read_folder(folder, INTERPRETER).presets["digits"].workload.metrics
    assert [metric.name for metric in metrics][:1] == ["loss"]
    assert {metric.name for metric in metrics} >= {"loss", "accuracy", "value"}


def test_click_is_read_as_well():
    options = {option.option: option for option in options_of(CLICK)}
    assert '"type": "float"'.replace('"', "") in options["--rate"].declared.replace('"', "").replace(" = ", ": ")
    assert 'choices = ["a", "b"]' in options["--kind"].declared
    assert options["--verbose"].words == ("{verbose}",)
    assert options["--many"].dropped == "it takes several values, or does something of its own"


ODD = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--model.lr", type=float, default=0.5)
p.add_argument("--top-k", type=int, default=-1)
p.add_argument("--sign", type=int, choices=[-1, 1], default=-1)
p.add_argument("--input", default="-")
p.add_argument("--title", default="two words")
o = p.parse_args()
print("score:", o.top_k * o.sign)
"""


def test_options_with_negative_defaults_and_names_with_dots_become_parameters_that_run(tmp_path):
    folder, made, file = written(tmp_path, "v1.2", [program(tmp_path, "train.py", ODD)])
    params = file["presets"]["v1.2"]["params"]
    assert list(params) == ["model.lr", "top-k", "sign"]
    assert (params["top-k"]["default"], params["sign"]["default"]) == (-1, "-1")
    assert "ran once, without a sandbox: it ended well" in made.notes
    dropped = [note for note in made.notes if note.startswith("left out: ")]
    assert [note.split(": ")[1] for note in dropped] == ["--input", "--title"]
    assert all("its default begins with -, or has characters" in note for note in dropped)
    assert [check for check in problems(folder, INTERPRETER) if check.level == "fail"] == []


MANY = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, default=0)
p.parse_args()
for number in range(12):
    open(f"w{number:02}.txt", "w").write("x")
print("score: 1")
"""


def test_of_many_files_so_many_are_kept_as_a_result_takes_of_its_repeats(tmp_path):
    folder, made, file = written(tmp_path, "many", [program(tmp_path, "train.py", MANY)])
    assert file["outputs"]["keep"] == [f"w{number:02}.txt" for number in range(9)]
    assert made.notes[-1] == "left out of keep, which has room for 9 files a repeat: w09.txt, w10.txt, w11.txt"
    assert list(problems(folder, INTERPRETER)) == []


def test_an_option_that_is_there_twice_is_one_parameter():
    options = list(options_of('a.add_argument("--lr", default=1.0)\nb.add_argument("--lr", default=2.0)\n'))
    assert [option.dropped for option in options] == [None, "an option of its name was there before"]


def test_a_shell_script_that_makes_a_picture_keeps_files_only(tmp_path):
    source = program(tmp_path, "plot.sh", "#!/bin/sh\ncat points.txt > plot.png\n", 0o755)
    points = program(tmp_path, "points.txt", "1 2\n")
    folder, made, file = written(tmp_path, "plot", [source, points])
    assert "metrics" not in file
    assert file["outputs"] == {"keep": ["plot.png"]}
    assert made.notes[-1] == "files that are kept: plot.png"
    assert [check for check in problems(folder, INTERPRETER) if check.level == "fail"] == []


PERL = """#!/usr/bin/perl
use Getopt::Long;
GetOptions("points=i" => \\my $points, "seed=i" => \\my $seed);
print "score: 0.5\\n";
"""


@pytest.mark.parametrize(
    ("name", "text"), [("mc.pl", PERL), ("mc.sh", "#!/bin/sh\necho score: ${1:-2}\n"),
                       ("mc.py", "import sys\nprint('score:', len(sys.argv))\n")],
)  # fmt: skip
def test_a_program_whose_options_are_not_read_gets_a_line_that_says_so(tmp_path, name, text):
    folder, made, _ = written(tmp_path, "mc", [program(tmp_path, name, text, 0o755)])
    [line] = [note for note in made.notes if note.startswith("options:")]
    assert "only those of argparse and click are read" in line
    assert '"{seed}"' in line
    [warning] = [check for check in problems(folder, INTERPRETER) if check.level == "warn"]
    assert warning.remedy == 'repeats = 6; first hand over "{seed}" in argv: without it all repeats are equal'


def test_a_program_that_hands_the_seed_over_needs_no_word_of_it(tmp_path):
    folder, made, _ = written(tmp_path, "digits", [program(tmp_path, "train.py", ARGPARSE)])
    assert not any(note.startswith("options:") for note in made.notes)
    path = folder / "workload.toml"
    path.write_text(path.read_text().replace("\nrepeats = 6", "\nrepeats = 2"))
    assert {check.remedy for check in problems(folder, INTERPRETER) if check.level == "warn"} == {"repeats = 6"}


def test_a_makefile_runs_its_benchmark(tmp_path):
    source = program(tmp_path, "Makefile", "all:\n\techo no\nbench:\n\t@echo 'elapsed: 0.25'\n")
    _, _, file = written(tmp_path, "made", [source])
    assert file["presets"]["made"]["argv"] == ["/usr/bin/make", "-s", "bench"]
    assert list(file["metrics"]) == ["elapsed"]


def test_a_json_text_on_stdout_is_read_by_pointer(tmp_path):
    source = program(tmp_path, "b.sh", '#!/bin/sh\necho \'{"results": [{"mean": 0.5, "command": "x"}]}\'\n', 0o755)
    _, _, file = written(tmp_path, "bench", [source])
    assert file["metrics"]["mean"]["number"] == {"pointer": "/results/0/mean"}


HYPERFINE = """{"results": [{"command": "true", "mean": 0.5, "stddev": 0.1, "median": 0.4, "max": 0.9,
"times": [0.5, 0.4], "exit_codes": [0, 0]}]}"""


def test_the_times_and_exit_codes_of_a_benchmark_are_no_numbers_of_it(tmp_path):
    source = program(tmp_path, "b.sh", f"#!/bin/sh\ncat > out.json <<'END'\n{HYPERFINE}\nEND\n", 0o755)
    offered = []
    _, _, file = written(tmp_path, "bench", [source], lambda many: offered.extend(many) or many[0])
    assert [candidate.name for candidate in offered] == ["mean", "stddev", "median", "max"]
    assert file["metrics"]["mean"]["number"] == {"file": "out.json", "pointer": "/results/0/mean"}


def test_what_a_compiler_built_is_not_kept(tmp_path):
    text = "bench: prog\n\t@./prog | tee said.txt\nprog:\n\tcp /bin/echo prog\n"
    _, made, file = written(tmp_path, "made", [program(tmp_path, "Makefile", text)])
    assert file["outputs"]["keep"] == ["said.txt"], made.notes


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        (
            "b.sh",
            "#!/bin/sh\nnosuchtool --fast\n",
            "; runs look in /usr/local/bin:/usr/bin:/bin: bring it along",
        ),
        ("Makefile", "bench: prog.c\n\tcc prog.c\n", "; bring it along, in a new folder, with one more --from prog.c"),
        ("t.py", "open('points.txt')\n", "; bring it along, in a new folder, with one more --from points.txt"),
    ],
)
def test_what_a_program_did_not_find_is_told_with_how_to_bring_it(tmp_path, name, text, remedy):
    _, made, _ = written(tmp_path, "t", [program(tmp_path, name, text, 0o755)])
    assert any(note.startswith("ran once") and remedy in note for note in made.notes), made.notes


def test_a_program_that_fails_is_written_and_its_last_line_told(tmp_path):
    source = program(tmp_path, "t.py", "import nosuchmodule\n")
    folder, made, _ = written(tmp_path, "t", [source])
    assert any("No module named 'nosuchmodule'; name the Python" in note for note in made.notes)
    assert (folder / "workload.toml").is_file()


def test_a_program_that_reports_by_itself_is_left_to_it(tmp_path):
    text = 'import os\nopen(os.environ["KAKEYA_REPORT"], "w").write(str({"metrics": {"loss": 1}}))\n'
    _, _, file = written(tmp_path, "own", [program(tmp_path, "own.py", text)])
    assert file["metrics"]["loss"] == {"pointer": "/metrics/loss", "unit": "1", "better": "lower", "repeats": 6}


@pytest.mark.parametrize(
    ("name", "sources", "unit", "message"),
    [("No", [], None, "expected lower-case"), ("x", ["none.py"], None, "no program"), ("x", [], "a\nb", "unit")],
)
def test_what_cannot_be_written_is_refused_before_anything_is(tmp_path, name, sources, unit, message):
    with pytest.raises(UsageError, match=message):
        written(tmp_path, name, [Path(source) for source in sources], unit=unit)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mark", ["$", "{", "}"])
def test_a_place_whose_path_would_stand_for_a_parameter_is_refused_in_one_line(tmp_path, mark):
    top = tmp_path / f"us{mark} data"
    with pytest.raises(UsageError, match="stands for a parameter") as refused:
        written(top, "digits", [])
    assert "\n" not in refused.value.message
    folder, *_ = written(tmp_path, "digits", [])
    top.mkdir()
    moved = folder.rename(top / "digits")
    (check,) = problems(moved, INTERPRETER)
    assert "stands for a parameter" in check.text


def test_words_that_are_always_given_stand_behind_the_program_and_are_no_parameters(tmp_path):
    source = program(tmp_path, "train.py", ARGPARSE)
    folder, _, file = written(tmp_path, "digits", [source], arguments=["data.csv", "--tag", "a b"])
    assert file["presets"]["digits"]["argv"][:5] == ["train.py", "data.csv", "--tag", "a b", "--lr"]
    assert "tag" not in file["presets"]["digits"]["params"]
    assert [check for check in problems(folder, INTERPRETER) if check.level == "fail"] == []


def test_a_script_of_a_virtual_environment_runs_with_its_python_and_a_folder_comes_along(tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (venv / "bin" / "python").symlink_to(INTERPRETER)
    text = f"#!{venv}/bin/python\nimport os\nprint(len(os.listdir('data')), 'passed in 0.02s')\n"
    script = program(tmp_path, "counting", text, mode=0o755)
    (tmp_path / "data").mkdir()
    program(tmp_path / "data", "one.txt", "1")
    folder, _, file = written(tmp_path, "counted", [script, tmp_path / "data"])
    assert file["environment"]["interpreter"] == f"{venv}/bin/python"
    assert (folder / "data" / "one.txt").read_text() == "1"
    assert file["metrics"]["passed"]["number"]["stdout"].endswith(r" passed\b")


@pytest.mark.parametrize(
    ("line", "name", "better"),
    [
        ("tokens/s: 120.5", "tokens_per_s", "higher"),
        ("images per second: 31", "images_per_second", "higher"),
        ("bytes_per_s = 7", "bytes_per_s", "higher"),
        ('{"req/sec": 9}', "req_per_sec", "higher"),
        ("errors/s: 0.5", "errors_per_s", "lower"),
        ("elapsed s: 2.5", "elapsed_s", "lower"),
        ("time per step: 3.5", "time_per_step", "lower"),
    ],
)
def test_more_of_a_rate_is_better_and_less_of_a_time_or_of_errors(tmp_path, line, name, better):
    source = program(tmp_path, "b.sh", f"#!/bin/sh\necho '{line}'\n", 0o755)
    _, _, file = written(tmp_path, "bench", [source])
    assert {key: table["better"] for key, table in file["metrics"].items()} == {name: better}


def test_numbers_within_a_line_and_before_their_word_are_found(tmp_path):
    lines = ("RESULT: PASSED (minimum: 80.0%, actual: 65.1%)", "A 6 word password of 7,227 words, 77 bits")
    text = "#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines)
    source = program(tmp_path, "cover.sh", text, mode=0o755)
    candidates = []
    written(tmp_path, "cover", [source], lambda numbers: candidates.extend(numbers) or numbers[1])
    assert {number.name: number.value for number in candidates} == {
        "minimum": 80.0,
        "actual": 65.1,
        "word": 6.0,
        "bits": 77.0,
    }


PROGRESS = """for step in (1, 2, 4):
    print(f"\\rloss: {1 / step}", end="")
print()
"""


def test_of_a_line_that_is_written_over_its_last_state_is_the_number(tmp_path):
    _, made, file = written(tmp_path, "bar", [program(tmp_path, "bar.py", PROGRESS)])
    assert "the number is loss, 0.25 this time" in made.notes
    (number,) = [metric["number"]["stdout"] for metric in file["metrics"].values()]
    printed = b"\rloss: 1.0\rloss: 0.5\rloss: 0.125\n"
    assert read_number({"stdout": number}, printed, {}) == 0.125


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("step,acc\n1,0.5,\n2,0.7,\n", ["step", "acc"]),
        (",acc\n0,0.5\n1,0.7\n", ["acc"]),
        (f"acc,text\n0.7,{'x' * 200_000}\n", ["acc"]),
        ("step;acc\r1;0.5\r2;0.7\r", ["step", "acc"]),
        ("\n", []),
    ],
    ids=["an end too much", "an index without a name", "a long text", "old ends of lines", "nothing"],
)
def test_columns_of_tables_as_programs_write_them_are_numbers(tmp_path, table, columns):
    text = f"open('out.csv', 'w', newline='').write({table!r})\n"
    *_, file = written(tmp_path, "rows", [program(tmp_path, "rows.py", text)])
    sources = [metric["number"]["column"] for metric in file.get("metrics", {}).values()]
    assert sources == columns[-1:]
    (tmp_path / "out.csv").write_text(table, newline="")
    wrote = {"out.csv": tmp_path / "out.csv"}
    assert [read_number({"file": "out.csv", "column": name}, b"", wrote) for name in sources] == [0.7] * len(sources)


@pytest.mark.parametrize("word", ["BEGIN{}", "$1"])
def test_a_word_with_what_stands_for_a_parameter_is_refused_with_what_to_do(tmp_path, word):
    with pytest.raises(UsageError, match="braces and \\$ stand for a parameter") as raised:
        written(tmp_path, "digits", [program(tmp_path, "a.py", "")], arguments=[word])
    assert "script" in str(raised.value.remedy)
    assert not (tmp_path / "digits").exists()
