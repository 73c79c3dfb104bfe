"""A text is worth the same as transformers holds it, on both backends, and less on caches that lose something."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from engine.checkpoint import ASSETS  # noqa: E402
from engine.cli.generate import main as generate  # noqa: E402
from engine.cli.score import main  # noqa: E402
from engine.errors import PromptError  # noqa: E402
from engine.generation.score import score  # noqa: E402
from engine.huggingface import open_causal  # noqa: E402
from engine.loading import load_backend, open_engine  # noqa: E402
from engine.structure.layout import CacheLayout  # noqa: E402
from engine.tokenizer import Tokenizer  # noqa: E402

TARGET = "kakeya-tiny-gemma4"
SMALL = "kakeya-tiny-qwen3"
TEXT = "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n" * 2
SIDES = {"torch": ["--backend", "torch", "--device", "cpu"], "mlx": ["--backend", "mlx"]}


@pytest.fixture(scope="module")
def expected() -> list[float]:
    ids = torch.tensor([Tokenizer(ASSETS / TARGET).encode(TEXT)])
    with torch.inference_mode():
        rows = open_causal(ASSETS / TARGET)(ids).logits[0].float().log_softmax(-1)
    return [float(rows[index, token]) for index, token in enumerate(ids[0, 1:].tolist())]


@pytest.mark.parametrize("backend", SIDES)
def test_every_token_is_as_probable_as_transformers_holds_it(
    backend: str, expected: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    nats = {}
    for layout in ("native", "affine4"):
        assert main([TEXT, "--target", TARGET, "--json", "--cache", layout, *SIDES[backend]]) == 0
        record = json.loads(capsys.readouterr().out)
        nats[layout] = record["nats_per_token"]
        if layout == "native":
            assert record["log_probabilities"] == pytest.approx(expected, abs=1e-4)
            assert record["perplexity"] == pytest.approx(2.718281828 ** nats[layout])
    assert abs(nats["affine4"] - nats["native"]) > 1e-5
    assert main([TEXT, "--target", TARGET, "--json", "--context", "20", *SIDES[backend]]) == 0
    assert json.loads(capsys.readouterr().out)["log_probabilities"] == pytest.approx(expected[19:], abs=1e-4)


@pytest.mark.parametrize("backend", SIDES)
def test_rows_that_are_made_again_behind_a_short_window_are_scored_within_it(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([TEXT, "--target", SMALL, "--json", "--cache", "sink4+window8+ftheta64", *SIDES[backend]]) == 0
    assert json.loads(capsys.readouterr().out)["scored_tokens"] == len(Tokenizer(ASSETS / SMALL).encode(TEXT)) - 1


def test_an_answer_s_tokens_are_the_most_probable_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(["class A:", "--target", TARGET, "--max-new", "20", "--json", "--logprobs", *SIDES["mlx"]]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["log_probabilities"]) == len(record["tokens"])
    assert record["nats_per_token"] < 3.0


def test_a_text_of_one_token_has_nothing_to_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["class", "--target", TARGET, "--context", "400"]) == 4
    assert "expected at least one of each" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_a_text_may_fill_the_context_to_its_last_position(backend: str) -> None:
    engine = open_engine(load_backend(backend, "cpu" if backend == "torch" else None), SMALL, None)
    most = engine.target.info.max_positions
    worth = score(engine, (2,) * most, CacheLayout.NATIVE, most - 20)
    assert len(worth.log_probabilities) == 20
    with pytest.raises(PromptError, match=f"the text has {most + 1} tokens; '{SMALL}' holds {most} positions"):
        score(engine, (2,) * (most + 1), CacheLayout.NATIVE, most - 20)
    with pytest.raises(PromptError, match="token id 1000000"):
        score(engine, (2, 2, 10**6), CacheLayout.NATIVE)
