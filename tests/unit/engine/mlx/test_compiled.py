"""A replayed step computes what a step built anew does, in the same buffers, past windows and behind rejected rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")
pytest.importorskip("torch", reason="the checkpoints are written with torch")

from engine.backends.mlx.fusing import Unfused  # noqa: E402
from engine.backends.mlx.models import compiled  # noqa: E402
from engine.loading import load_backend  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from engine.types import Draft  # noqa: E402
from tests.fakes import tiny_families  # noqa: E402

IDS = tuple(5 + (index * 7) % (tiny_families.VOCAB - 5) for index in range(400))
BLOCKS = ((4, 2), (4, 4), (4, 1), (1, 1), (1, 1), (4, 3))
"""Rows of a block, and how many of them stay: each size comes more than once, so that it is replayed."""


CASES = [
    ("qwen3", CacheLayout.NATIVE),
    ("gemma3_text", CacheLayout.NATIVE),
    ("gemma3_text", CacheLayout.FULL),
    ("gpt_oss", CacheLayout.NATIVE),
    ("qwen3_next", CacheLayout.NATIVE),
    ("qwen3_5_text", CacheLayout.FULL),
]


class Counted:
    """Compiled steps that count how many forwards they ran."""

    def __init__(self, steps: Any) -> None:
        self.steps, self.ran = steps, 0

    def forward(self, *arguments: Any) -> Any:
        forward = self.steps.forward(*arguments)
        self.ran += forward is not None
        return forward


def opened(target: Any, prompt: int, layout: CacheLayout) -> Any:
    sequence = target.open((0, 1), layout)
    for _ in sequence.prefill(IDS[:prompt], 64):
        pass
    return sequence


def block(position: int, rows: int) -> tuple[int, Draft]:
    return IDS[position], Draft(IDS[position + 1 : position + rows], rows - 1)


@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_a_replayed_block_is_the_one_built_anew(tmp_path: Path, kind: str, layout: CacheLayout) -> None:
    target = load_backend("mlx").load_target(tiny_families.write_family(tmp_path, kind))
    prompt = 248
    built, replayed = opened(target, prompt, layout), opened(target, prompt, layout)
    built.steps, replayed.steps = None, Counted(replayed.steps)
    position = prompt
    for rows, accepted in BLOCKS * 2:
        forwards = [sequence.forward_block(*block(position, rows)) for sequence in (built, replayed)]
        for expected, other in (
            (forwards[0].logits, forwards[1].logits),
            (forwards[0].features, forwards[1].features),
        ):
            assert mx.allclose(expected, other, rtol=1e-4, atol=1e-4).item()
        position += accepted
        for sequence in (built, replayed):
            sequence.crop(position)
        assert built.measured_bytes() == replayed.measured_bytes()
    assert replayed.steps.ran >= len(BLOCKS)


def test_the_graphs_that_were_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MOST_SHAPES", 3)
    target = load_backend("mlx").load_target(tiny_families.write_family(tmp_path, "qwen3"))
    sequence = opened(target, 40, CacheLayout.NATIVE)
    sequence.steps = counted = Counted(sequence.steps)
    replays = []
    for rows in (2, 2, 3, 2, 4, 2, 5, 2, 6, 2, 3):
        before = counted.ran
        sequence.forward_block(*block(40, rows))
        sequence.crop(40)
        replays.append(counted.ran > before)
    assert replays == [False, True, False, True, False, True, False, True, False, True, False]


def test_what_a_rejected_row_left_behind_is_never_seen(tmp_path: Path) -> None:
    target, broken = load_backend("mlx").load_target(tiny_families.write_family(tmp_path, "qwen3")), IDS[60]
    target.family.text.embed_tokens.weight[broken] = float("nan")
    sequence, clean = opened(target, 40, CacheLayout.NATIVE), opened(target, 40, CacheLayout.NATIVE)
    sequence.steps = counted = Counted(sequence.steps)
    for position in range(40, 44):
        bad = sequence.forward_block(IDS[position], Draft((broken, 7, 9), 3))
        assert not mx.isfinite(bad.logits[1:]).any().item()
        sequence.crop(position)
        actual, expected = (each.forward_block(IDS[position], Draft()).logits for each in (sequence, clean))
        assert mx.allclose(actual, expected, rtol=1e-4, atol=1e-4).item()
    assert counted.ran >= 6


@pytest.mark.parametrize("back", ["crop", "rewind"])
def test_a_kept_row_that_is_no_number_is_forgotten_with_the_rows_behind_an_earlier_length(
    tmp_path: Path, back: str
) -> None:
    target, broken = load_backend("mlx").load_target(tiny_families.write_family(tmp_path, "qwen3")), IDS[60]
    target.family.text.embed_tokens.weight[broken] = float("nan")
    sequence, clean = opened(target, 40, CacheLayout.NATIVE), opened(target, 40, CacheLayout.NATIVE)
    sequence.steps = counted = Counted(sequence.steps)
    for bonus in (IDS[40], broken, IDS[42]):
        sequence.forward_block(bonus, Draft())
    getattr(sequence, back)(40)
    for position in range(40, 44):
        actual, expected = (each.forward_block(IDS[position], Draft()).logits for each in (sequence, clean))
        assert mx.allclose(actual, expected, rtol=1e-4, atol=1e-4).item()
    assert counted.ran >= 4


def test_threads_that_trace_at_once_leave_fusing_off_until_the_last_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unfused, "_inside", 0)  # the tests' own process never fuses
    first, second, heard = Unfused(), Unfused(), []
    for each in (first, second):
        each._set_mode = heard.append
    with first:
        with second:
            pass
        assert len(set(heard)) == 1
    assert len(set(heard)) == 2


TRACES = """
import mlx.core as mx
from engine.loading import load_backend
load_backend("mlx")
traced = []
def curve(value):
    traced.append(None)
    return mx.exp(value) * 2 + 1
compiled = mx.compile(curve)
found = [compiled(mx.zeros(2)).tolist() for _ in range(3)]
print(len(traced), found == [[3.0, 3.0]] * 3)
"""


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="MLX asks for a compiler on a CPU under Linux")
def test_functions_are_traced_where_there_is_no_compiler(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TRACES],
        env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("1 True\n", "")
