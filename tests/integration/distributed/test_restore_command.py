"""The packaged f_theta in another process of this machine, as somebody types it: recall, tokens, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="rows are asked for over gRPC")
pytest.importorskip("mlx.core", reason="the packaged pair is decoded with MLX")

from engine.cli import generate
from engine.cli.distributed import commands
from engine.isolation.drafter_process import DrafterProcess
from engine.loading import resolve_model
from engine.measurement.selection import load_prompts
from engine.tokenizer import Tokenizer

pytestmark = pytest.mark.ci
TARGET = "kakeya-tiny-qwen3"
PAIR = ["--backend", "mlx", "--target", TARGET, "--drafter", f"{TARGET}-dflash"]
F_THETA = f"{TARGET}-ftheta64"
LAYOUT = "sink4+window64+ftheta64"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    process = DrafterProcess([*PAIR, "--restoration", F_THETA])
    yield process.address
    process.close()


@pytest.fixture(scope="module")
def prompt(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A prompt of 1,900 tokens as a file, with a code in it."""
    tokenizer = Tokenizer(resolve_model(TARGET))
    path = tmp_path_factory.mktemp("prompt") / "prompt.txt"
    path.write_text(tokenizer.decode(load_prompts("recall-one", tokenizer, TARGET).prompts[0].ids))
    return f"@{path}"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert generate.main([*words, "--max-new", "12", "--depth", "3", "--json"]) == 0
    record: dict[str, object] = json.loads(capsys.readouterr().out)
    return record


def test_drafts_and_rows_come_from_one_host_and_the_answer_is_that_of_both_here(
    address: str, prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here = answer(capsys, prompt, *PAIR, "--cache", LAYOUT)
    served = [*PAIR[:4], "--drafter", f"grpc:{address}"]
    there = answer(capsys, prompt, *served, "--cache", "sink4+window64+ftheta@remote")
    assert there["tokens"] == here["tokens"]
    assert there["drafted_tokens"] == here["drafted_tokens"]


def test_the_command_compares_both_and_says_what_moved(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["restore", *PAIR, "--address", address, "--prompts", "2", "--max-new", "28"]
    assert commands.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:5] for line in lines[:3]] == [
        [way, "2", "of", "2", "codes"] for way in ("native", "here", "elsewhere")
    ]
    assert "MB in " in lines[2]
    assert lines[3] == "rows made elsewhere gave the tokens of rows made here on 2 of 2 prompts"


def test_a_host_that_the_command_starts_loads_what_lies_beside_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("", "-dflash", "-ftheta64"):
        shutil.copytree(resolve_model(f"{TARGET}{kind}"), tmp_path / f"mine{kind}")
    pair = ["--target", str(tmp_path / "mine"), "--drafter", str(tmp_path / "mine-dflash")]
    assert commands.main(["restore", "--backend", "mlx", *pair, "--prompts", "1", "--max-new", "4"]) == 0
    assert "gave the tokens of rows made here on 1 of 1 prompts" in capsys.readouterr().out


def test_prompts_within_the_window_compare_nothing(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": "short", "kind": "raw", "text": "def add(a, b):"}]
    path = tmp_path / "short.json"
    path.write_text(json.dumps({"schema": 1, "set": "short", "rule": "made", "prompts": rows}))
    words = ["restore", *PAIR, "--address", address, "--set", str(path), "--max-new", "4"]
    assert commands.main(words) == 2
    printed = capsys.readouterr()
    assert "no row left the window on any prompt, so nothing was made again" in printed.err
    assert "rows made elsewhere gave" not in printed.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["restore", *PAIR, "--cache", "sink4+window64"], 2, "expected a layout with +fthetaRANK@remote"),
        (["restore", *PAIR, "--address", "127.0.0.1:1", "--here"], 0, ""),
        (["serve", "--drafter", "ngram", "--restoration", F_THETA], 2, "prompt lookup reads nothing"),
        (["serve", *PAIR, "--restoration", "grpc:127.0.0.1:1"], 2, "serve loads an f_theta"),
    ],
)
def test_what_cannot_be_compared_or_served_is_one_line(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main([*words, "--prompts", "1", "--max-new", "2"]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == bool(message)


def test_a_host_without_an_f_theta_or_of_another_target_is_refused_before_anything_is_decoded(
    address: str, prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ["--backend", "mlx", "--target", "kakeya-tiny-gemma4", "--drafter", "none"]
    cache = ["--cache", f"{LAYOUT}@remote"]
    assert generate.main([prompt, *other, *cache, "--restoration", f"grpc:{address}"]) == 3
    assert "was fitted for the target 'kakeya-tiny-qwen3'" in capsys.readouterr().err
    bare = DrafterProcess(PAIR)
    try:
        assert generate.main([prompt, *PAIR[:4], *cache, "--drafter", f"grpc:{bare.address}"]) == 7
    finally:
        bare.close()
    error = capsys.readouterr().err
    assert "nobody makes rows again at" in error
    assert error.count("\n") == 1


def test_a_folder_is_named_for_rows_made_here_and_an_address_for_others(
    prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main([prompt, *PAIR, "--cache", f"{LAYOUT}@remote"]) == 2
    assert "no host is named that makes rows" in capsys.readouterr().err
