"""A small causal model as drafter changes no token, on either backend, and forgets exactly what was not accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.errors import ModelMismatchError
from engine.loading import Engine, load_backend, open_engine
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Step
from tests.fakes import tiny_torch

PROMPT = tuple(range(5, 31))
BUDGET = 16


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("draft-models")
    tiny_torch.write_target(root / "gemma4", "gemma4")
    tiny_torch.write_target(root / "qwen3", "qwen3")
    tiny_torch.write_target(root / "short", "qwen3", seed=1, num_hidden_layers=2, max_position_embeddings=40)
    tiny_torch.write_target(root / "other-words", "qwen3", vocab_size=90)
    return root


@pytest.fixture(params=["torch", "mlx"])
def backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "mlx":
        pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")
        return load_backend("mlx")
    return load_backend("torch", "cpu")


def oracle(engine: Engine) -> list[int]:
    steps = autoregressive(engine.target.open((), CacheLayout.FULL), engine.accept, PROMPT, Stopping(BUDGET))
    return [token for step in steps for token in step.tokens]


def drafted(engine: Engine, depth: int) -> list[Step]:
    sequence = engine.target.open((), CacheLayout.NATIVE)
    drafter = engine.drafter.open()
    parts = Parts(sequence, drafter, engine.accept, FixedDepth(depth), engine.backend.clock)
    steps = list(speculative(parts, PROMPT, Stopping(BUDGET)))
    assert drafter.forwards >= sum(step.drafted for step in steps)
    assert drafter.measured_bytes() > 0
    return steps


@pytest.mark.parametrize(
    ("backend", "target", "small"),
    [
        ("torch", "gemma4", "qwen3"),
        ("mlx", "qwen3", "gemma4"),
        pytest.param("torch", "qwen3", "gemma4", marks=pytest.mark.slow),
        pytest.param("mlx", "gemma4", "qwen3", marks=pytest.mark.slow),
    ],
    indirect=["backend"],
)
def test_another_model_changes_no_token(backend: Any, models: Path, target: str, small: str) -> None:
    engine = open_engine(backend, str(models / target), str(models / small))
    assert engine.drafter.info.format == "draft-model"
    for depth in (1, 4):
        assert [token for step in drafted(engine, depth) for token in step.tokens] == oracle(engine)


@pytest.mark.parametrize("kind", ["gemma4", "qwen3"])
def test_the_target_as_its_own_drafter_is_always_right(backend: Any, models: Path, kind: str) -> None:
    engine = open_engine(backend, str(models / kind), str(models / kind))
    steps = drafted(engine, 4)
    assert [token for step in steps for token in step.tokens] == oracle(engine)
    assert all(step.accepted == step.drafted for step in steps)
    assert sum(step.accepted for step in steps) > BUDGET / 2


@pytest.mark.parametrize("kind", ["gemma4", "qwen3"])
def test_an_accepted_draft_costs_one_forward_a_token_and_no_more(backend: Any, models: Path, kind: str) -> None:
    engine = open_engine(backend, str(models / kind), str(models / kind))
    drafter = engine.drafter.open()
    parts = Parts(
        engine.target.open((), CacheLayout.NATIVE), drafter, engine.accept, FixedDepth(4), engine.backend.clock
    )
    steps = list(speculative(parts, PROMPT, Stopping(BUDGET)))
    # The prompt, and then nothing but drafts: the row that a full acceptance leaves out goes along with the next bonus.
    assert drafter.forwards == 1 + sum(step.drafted for step in steps)


@pytest.mark.parametrize("kind", ["gemma4", "qwen3"])
@pytest.mark.parametrize("prefix_length", [1, 5])
def test_drafting_ahead_predicts_what_plain_decoding_emits(
    backend: Any, models: Path, kind: str, prefix_length: int
) -> None:
    engine = open_engine(backend, str(models / kind), None)
    answer = oracle(engine)
    sequence = engine.target.open((), CacheLayout.FULL)
    list(sequence.prefill(PROMPT, 512))
    ahead = sequence.draft_ahead(tuple(answer[:prefix_length]), 6)
    assert ahead.tolist() == answer[prefix_length : prefix_length + 6]
    assert sequence.length == len(PROMPT) + prefix_length + 5
    sequence.crop(len(PROMPT))
    assert sequence.draft_ahead((answer[0],), 1).tolist() == [answer[1]]


def test_past_its_own_context_it_stops_drafting_and_says_so(models: Path) -> None:
    engine = open_engine(load_backend("torch", "cpu"), str(models / "qwen3"), str(models / "short"))
    steps = drafted(engine, 4)
    assert [token for step in steps for token in step.tokens] == oracle(engine)
    assert "the context is past what the draft model holds" in {step.skipped for step in steps}


def write_words(folder: Path, first: str) -> None:
    """Write a tokenizer of 90 tokens, fewer than targets have rows."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {first: 0} | {f"w{index}": index for index in range(1, 90)}
    Tokenizer(WordLevel(words, unk_token=first)).save(str(folder / "tokenizer.json"))


def test_a_model_of_another_vocabulary_is_refused(models: Path) -> None:
    write_words(models / "qwen3", "one")
    write_words(models / "other-words", "another")
    with pytest.raises(ModelMismatchError, match="has 90 token ids; the target 'qwen3' has 97"):
        open_engine(load_backend("torch", "cpu"), str(models / "qwen3"), str(models / "other-words"))


def test_as_many_tokens_are_not_the_same_tokens(models: Path) -> None:
    write_words(models / "gemma4", "one")
    write_words(models / "short", "another")
    with pytest.raises(ModelMismatchError, match="the same word must have the same id"):
        open_engine(load_backend("torch", "cpu"), str(models / "gemma4"), str(models / "short"))


def test_a_target_with_more_rows_than_tokens_is_drafted_for(backend: Any, models: Path) -> None:
    for name in ("qwen3", "other-words"):
        write_words(models / name, "one")
    engine = open_engine(backend, str(models / "qwen3"), str(models / "other-words"))
    # Random weights choose rows behind the tokens too, which the small model does not have.
    assert [token for step in drafted(engine, 4) for token in step.tokens] == oracle(engine)
    drafter = engine.drafter.open()
    drafter.observe(0, (5, 6), None)
    assert drafter.ask(7, 2, 2).count == 2
    drafter.observe(2, (7, 95), None)
    assert "has no row for" in str(drafter.ask(8, 4, 2).skipped)
    drafter.rewind(3)
    assert "has no row for" in str(drafter.ask(90, 3, 2).skipped)
    assert drafter.ask(8, 3, 2).count == 2
