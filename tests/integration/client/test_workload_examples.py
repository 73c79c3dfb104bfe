"""The examples do what their workload.toml says: checked as folders, and each program started as a run starts it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.executor.turns.pipe import TurnPipe
from bridge.gate.rules.workload import metric_problem
from bridge.presets.workloads import problems, read_folder
from tests.support.workload_folder import INTERPRETER

pytestmark = pytest.mark.needs("cc")

EXAMPLES = Path(__file__).parents[3] / "examples"
BUILT = ("takes-turns", "two-sums")


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """The folders as their owner has them: copied, built, and with the environment that one of them names."""
    top = tmp_path_factory.mktemp("examples")
    for folder in sorted(EXAMPLES.iterdir()):
        shutil.copytree(folder, top / folder.name, ignore=shutil.ignore_patterns("old", "new", "sums"))
    for name in BUILT:
        subprocess.run(["make", "-s"], cwd=top / name, check=True, timeout=120)
    subprocess.run(["chmod", "-R", "go-w,a+rX", str(top)], check=True, timeout=240)
    for name in ("checks", "servers"):
        (top / name / ".venv").symlink_to(Path(INTERPRETER).parents[1])
    return top


def test_every_example_can_be_offered(examples):
    names = {}
    for folder in sorted(examples.iterdir()):
        assert [check for check in problems(folder, INTERPRETER) if check.level == "fail"] == []
        names[folder.name] = set(read_folder(folder, INTERPRETER).presets)
    assert names == {
        "checks": {"checks"}, "line-fit": {"line-fit"}, "servers": {"servers"},
        "takes-turns": {"c-sums", "py-words"}, "two-sums": {"two-sums"},
    }  # fmt: skip


def test_an_environment_behind_a_link_is_named_by_where_it_is(examples):
    """A sandbox shows the environment, not the link."""
    (command,) = read_folder(examples / "checks", INTERPRETER).presets["checks"].commands
    assert (examples / "checks" / ".venv").is_symlink()
    assert command.argv[0] == str(Path(INTERPRETER).parents[1].resolve() / "bin" / "python")


def started(folder, program, out, python):
    """Start a program of an example as a repeat is; return its last line."""
    environment = {
        "KAKEYA_SEED": "7",
        "KAKEYA_OUT": str(out),
        "KAKEYA_REPORT": str(out / "report.json"),
        "HOME": str(out),
    }
    ran = subprocess.run(
        [python, str(folder / program)],
        cwd=out,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return ran.stdout.strip().splitlines()[-1:] or [""]


@pytest.mark.parametrize(
    ("name", "program", "python", "files"),
    [
        ("line-fit", "train.py", INTERPRETER, {"report.json", "weights.json"}),
        ("checks", "suite.py", sys.executable, {"report.json"}),
    ],
    ids=["line-fit", "checks"],
)
def test_a_report_holds_what_is_declared_and_nothing_else_is_left(examples, tmp_path, name, program, python, files):
    started(examples / name, program, tmp_path, python)
    assert {path.name for path in tmp_path.iterdir()} == files
    report = json.loads((tmp_path / "report.json").read_text())
    definition = read_folder(examples / name, INTERPRETER).presets[name].workload
    assert [metric_problem(metric, report) for metric in definition.metrics] == [None]
    if name == "line-fit":
        (line,) = started(examples / name, "recompute.py", tmp_path, python)
        assert json.loads(line) == report["metrics"]


@pytest.mark.parametrize("program", [["sums"], [INTERPRETER, "words.py"]], ids=["C", "Python"])
def test_a_program_takes_turns_as_the_runner_says(examples, program):
    folder = examples / "takes-turns"
    orders, answers = os.pipe(), os.pipe()
    for end in (orders[0], answers[1]):
        os.set_inheritable(end, True)
    numbers = {"KAKEYA_TURN_ORDERS": str(orders[0]), "KAKEYA_TURN_ANSWERS": str(answers[1])}
    argv = [str(folder / word) if (folder / word).exists() else word for word in program]
    with subprocess.Popen(argv, env=numbers, pass_fds=(orders[0], answers[1])) as process:
        os.close(orders[0])
        os.close(answers[1])
        pipe = TurnPipe(orders[1], answers[0], lambda: process.poll() is not None)
        assert pipe.answer("ready")[0] == {"event": "ready", "protocol": 1, "samples": 4, "calibration": {}}
        pipe.order(event="launch", protocol=1, number=0, block=0, nonce="0" * 64, calibration={})
        for turn, (arm, seconds) in enumerate((("candidate", None), ("baseline", None), ("baseline", 0.2)), start=1):
            began = pipe.order(event="go", turn=turn, arm=arm, sample=0, tokens=None, seconds=seconds)
            answer, ended = pipe.answer("done")
            assert (answer["turn"], answer["over"]) == (turn, True)
            assert answer["tokens"] == 1 if seconds is None else ended - began >= seconds
        pipe.order(event="end")
        assert process.wait(240) == 0
    for end in (orders[1], answers[0]):
        os.close(end)


def test_started_by_hand_it_says_what_to_do(examples):
    for argv in ([str(examples / "takes-turns" / "sums")], [INTERPRETER, str(examples / "takes-turns" / "words.py")]):
        ran = subprocess.run(argv, env={}, capture_output=True, text=True, timeout=240, check=False)
        assert (ran.returncode, ran.stderr) == (1, "nobody hands out turns: start this with kakeya-mac run\n")
