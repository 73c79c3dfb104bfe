"""What a training writes down: atomic checkpoints, a curve that survives resumption, the command that repeats it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import UsageError
from engine.training.checkpoint import CurveLog, Resumable, load, only_training, save
from engine.training.record import recorded_command


def test_a_curve_forgets_what_came_after_the_resumed_step(tmp_path):
    log = CurveLog(tmp_path / "curve.jsonl", 0)
    for step in (10, 20, 30):
        log.append({"step": step})
    again = CurveLog(tmp_path / "curve.jsonl", 25)
    again.append({"step": 25})
    rows = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [10, 20, 25]


def test_a_curve_goes_on_behind_a_line_that_was_half_written(tmp_path):
    path = tmp_path / "curve.jsonl"
    path.write_text('{"step": 10}\n{"step": 2')
    CurveLog(path, 30).append({"step": 30})
    assert path.read_text() == '{"step": 10}\n{"step": 30}\n'


class Counting(Resumable):
    """A training whose steps are counted and whose evaluations say at which step they were."""

    shown = ()

    def __init__(self, work: Path) -> None:
        self.resume(work, torch.nn.Linear(1, 1), self)

    def state(self) -> list[dict[str, Any]]:
        return []

    def restore(self, states: list[dict[str, Any]]) -> None:
        assert states == []

    def train_step(self) -> float:
        self.step += 1
        return 1.0

    def evaluate(self) -> dict[str, float]:
        return {"at": float(self.step)}


def test_a_curve_keeps_what_was_measured_at_the_step_that_was_saved(tmp_path):
    first = Counting(tmp_path)
    first.advance(4, 2, None, None)
    first.save()
    assert [row["at"] for row in Counting(tmp_path).curve.rows] == [2.0, 4.0]


def test_a_training_that_had_levelled_ends_there_again(tmp_path):
    first = Counting(tmp_path)
    first.advance(6, 2, None, None, lambda: True)
    first.save()
    again = Counting(tmp_path)
    again.advance(6, 2, None, None, lambda: True)
    assert (again.step, [row["at"] for row in again.curve.rows]) == (2, [2.0])
    again.advance(6, 2, None, None, lambda: False)
    assert again.step == 6


def test_a_work_folder_is_one_training_s_until_its_process_ends(tmp_path):
    holder = "from engine.training.checkpoint import only_training as hold; import pathlib, sys, time\n"
    holder += "with hold(pathlib.Path(sys.argv[1])):\n    print('holds', flush=True)\n    time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"holds\n"
        with pytest.raises(UsageError, match="another training works in"), only_training(tmp_path):
            pass
        process.kill()
    with only_training(tmp_path):
        pass


def test_a_checkpoint_comes_back_and_leaves_no_partial_file(tmp_path):
    path = tmp_path / "work" / "checkpoint.pt"
    assert load(path) is None
    save(path, {"model": {"w": torch.ones(2)}, "step": 3})
    state = load(path)
    assert state is not None
    assert state["step"] == 3
    assert [item.name for item in path.parent.iterdir()] == ["checkpoint.pt"]


class Unwritable:
    """What a file system that is full is to a checkpoint: written to its half."""

    def __reduce__(self) -> str:
        raise OSError("no space left")


def test_a_checkpoint_whose_writing_breaks_off_leaves_the_one_before(tmp_path):
    path = tmp_path / "checkpoint.pt"
    save(path, {"step": 3})
    with pytest.raises(OSError, match="no space left"):
        save(path, {"model": torch.ones(2), "step": Unwritable()})
    assert load(path) == {"step": 3}


def test_the_recorded_command_names_folders_without_their_place():
    options = {"verb": "target", "family": "qwen3", "steps": 5, "out": Path("/a/b/kakeya-tiny-qwen3"), "quiet": True}
    command = recorded_command("target", options)
    assert command == "kakeya-engine train target --family qwen3 --steps 5 --out kakeya-tiny-qwen3"


def test_the_recorded_command_has_every_number_and_a_switch_without_one():
    options = {
        "verb": "dflash", "seed": 1, "lag": 1, "head_rows": 0, "least_gain": 1.0, "layers": (), "start": None,
        "features_on_disk": True,
    }  # fmt: skip
    numbers = "--seed 1 --lag 1 --head-rows 0 --least-gain 1.0"
    assert recorded_command("dflash", options) == f"kakeya-engine train dflash {numbers} --features-on-disk"
    assert recorded_command("dflash", {"layers": (1,), "features_on_disk": False}).endswith("dflash --layers 1")


def test_the_recorded_command_of_a_training_that_was_ended_early_says_at_which_step():
    command = recorded_command("target", {"verb": "target", "steps": 3400, "export_at": 250})
    assert command == "kakeya-engine train target --steps 3400 --export-at 250"
