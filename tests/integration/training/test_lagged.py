"""A drafter trained with its newest features missing: what it reads then, and what it begins with."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="drafters are trained with torch")

import torch

from engine.conversion.drafter_file import read_drafter
from engine.conversion.mlx_folder import write_mlx
from engine.errors import ModelConfigError, ModelMismatchError, UsageError
from engine.training.dflash import BLOCK_SIZE, DrafterRun, DrafterTrainer, export_drafter
from engine.training.requests import Response

VOCABULARY, PROMPT, LENGTH, LAG = 256, 6, 40, 5
ANCHOR = 20


@pytest.fixture(scope="module")
def target():
    import transformers

    from engine.training.recipe import target_config

    torch.manual_seed(5)
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**target_config("qwen3", "small", VOCABULARY)))


@pytest.fixture(scope="module")
def responses():
    rng = np.random.default_rng(3)
    return [Response(tuple(int(token) for token in rng.integers(8, VOCABULARY, LENGTH)), PROMPT) for _ in range(12)]


def trainer_of(tmp_path, target, responses, lag=0, **options):
    return DrafterTrainer(DrafterRun(4, 3, 12, tmp_path / f"lag{lag}", lag=lag, **options), target, responses)


def logits_of(trainer, ids, features, lag):
    """Return what a drafter says behind the bonus at ``ANCHOR`` where so many features before it are missing."""
    response = Response(tuple(ids), PROMPT)
    trainer.features_by_ids = {response.ids: features}
    anchors, lags = torch.tensor([[ANCHOR]]), torch.tensor([[lag]])
    with torch.no_grad():
        logits, labels, valid = trainer._forward([response], torch.tensor([ids]), anchors, lags)
    assert labels[0, 0].tolist() == list(ids[ANCHOR + 1 : ANCHOR + BLOCK_SIZE])
    assert bool(valid.all())
    return logits[0, 0]


def test_features_that_lag_are_not_read_and_their_tokens_are(tmp_path, target, responses):
    late, usual = (trainer_of(tmp_path, target, responses, lag) for lag in (LAG, 0))
    late.drafter.load_state_dict(usual.drafter.state_dict())
    ids = responses[0].ids
    usual.features([responses[0]], torch.tensor([ids]))
    features = usual.features_by_ids[ids]
    other = features.clone()
    other[ANCHOR - LAG : ANCHOR] = torch.randn(LAG, features.shape[1]).to(features.dtype)
    others = (*ids[: ANCHOR - 2], (ids[ANCHOR - 2] + 1) % VOCABULARY, *ids[ANCHOR - 1 :])

    assert torch.equal(logits_of(late, ids, features, LAG), logits_of(late, ids, other, LAG))
    assert not torch.equal(logits_of(late, ids, features, LAG - 1), logits_of(late, ids, other, LAG - 1))
    assert not torch.equal(logits_of(late, ids, features, LAG), logits_of(late, others, features, LAG))
    # Where nothing is missing a token before the bonus is not in the block: it is the usual drafter's.
    assert torch.equal(logits_of(late, ids, features, 0), logits_of(late, others, features, 0))
    assert torch.allclose(logits_of(late, ids, features, 0), logits_of(usual, ids, features, 0), atol=0.05)


def test_as_many_features_lag_as_were_drawn_and_one_position_always_has_its_own(tmp_path, target, responses):
    trainer = trainer_of(tmp_path, target, responses, LAG)
    anchors = torch.arange(1, 201)[None]
    lags = trainer._lags(anchors, np.random.default_rng(1))
    assert set(lags[0, LAG:].tolist()) == set(range(LAG + 1))
    assert bool((lags < anchors).all())
    rng = np.random.default_rng(1)
    assert not trainer_of(tmp_path, target, responses)._lags(anchors, rng).any()
    assert rng.random() == np.random.default_rng(1).random(), (
        "without a lag nothing is drawn: rows stay those of before"
    )
    loss, _ = trainer.loss(responses[:2], np.random.default_rng(2))
    assert bool(loss.isfinite())


def test_the_loss_is_over_the_response_alone_up_to_its_end(tmp_path, target, responses):
    trainer = trainer_of(tmp_path, target, responses)
    rng = np.random.default_rng(4)
    anchors = torch.cat([trainer._anchors(responses[0], rng) for _ in range(40)])
    assert (int(anchors.min()), int(anchors.max())) == (PROMPT, LENGTH - 2)

    whole, short = responses[0], Response(responses[1].ids[: ANCHOR + 3], PROMPT)
    ids = torch.tensor([whole.ids, (*short.ids, *[trainer.run.pad] * (LENGTH - len(short.ids)))])
    places = torch.full((2, 1), ANCHOR)
    with torch.no_grad():
        _, labels, valid = trainer._forward([whole, short], ids, places, torch.zeros_like(places))
    assert valid[:, 0].sum(-1).tolist() == [BLOCK_SIZE - 1, 2]
    assert labels[1, 0][valid[1, 0]].tolist() == list(short.ids[ANCHOR + 1 :])


def test_training_begins_with_a_drafter_of_the_same_target_only(tmp_path, target, responses):
    first = trainer_of(tmp_path, target, responses)
    first.train_step()
    export_drafter(first.drafter, tmp_path / "first")
    started = trainer_of(tmp_path, target, responses, LAG, start=tmp_path / "first")
    for name, value in first.drafter.state_dict().items():
        assert torch.equal(value, started.drafter.state_dict()[name]), name
    config = json.loads((tmp_path / "first" / "config.json").read_text())
    (tmp_path / "first" / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 4}))
    with pytest.raises(ModelMismatchError, match="no drafter to begin with: num_hidden_layers differ"):
        trainer_of(tmp_path, target, responses, LAG, start=tmp_path / "first")
    with pytest.raises(ModelConfigError, match="cannot read"):
        trainer_of(tmp_path, target, responses, LAG, start=tmp_path / "nowhere")


def test_training_begins_with_a_drafter_stored_as_codes(tmp_path, target, responses):
    pytest.importorskip("mlx.core", reason="the MLX backend is not installed")
    first = trainer_of(tmp_path, target, responses)
    export_drafter(first.drafter, tmp_path / "first")
    write_mlx(read_drafter(tmp_path / "first"), tmp_path / "codes", 8, 64)
    started = trainer_of(tmp_path, target, responses, LAG, start=tmp_path / "codes")
    for name, value in first.drafter.state_dict().items():
        steps = value.abs().max() / 100 if value.ndim == 2 else 0.0
        assert bool(((value - started.drafter.state_dict()[name]).abs() <= steps).all()), name


def test_state_of_another_training_is_not_gone_on_with(tmp_path, target, responses):
    first = DrafterTrainer(DrafterRun(4, 3, 12, tmp_path), target, responses)
    first.train_step()
    first.save()
    assert DrafterTrainer(DrafterRun(4, 9, 12, tmp_path), target, responses).step == 1
    for changes, message in (
        ({"lag": LAG}, "lag 0 instead of 5"),
        ({"seed": 5}, "seed 4 instead of 5"),
        ({"rows": 13}, "rows 12 instead of 13"),
    ):
        settings = {"seed": 4, "steps": 3, "rows": 12, "work": tmp_path} | changes
        with pytest.raises(UsageError, match=f"another training: {message}. Give another --work"):
            DrafterTrainer(DrafterRun(**settings), target, responses)
    run = DrafterRun(4, 3, 12, tmp_path)
    others = [*responses[:-1], Response(responses[-1].ids[::-1], PROMPT)]  # of another target, or to other prompts
    with pytest.raises(UsageError, match=r"another training: responses [0-9a-f]{16} instead of [0-9a-f]{16}\. Give"):
        DrafterTrainer(run, target, others)
    with pytest.raises(UsageError, match=r"another training: layers \[1, 3, 4\] instead of \[0, 2, 4\]\. Give"):
        DrafterTrainer(replace(run, target_layers=(0, 2, 4)), target, responses)


def test_nothing_is_trained_on_whose_prompt_is_held_back(tmp_path, target, responses):
    again = Response((*responses[0].ids[:PROMPT], *responses[1].ids[PROMPT:]), PROMPT)
    trainer = trainer_of(tmp_path, target, [*responses, again])
    assert trainer.held_back == [responses[0]]
    assert trainer.responses == responses[1:]
    with pytest.raises(UsageError, match="expected at least 2, to one prompt to hold back and to another one"):
        trainer_of(tmp_path, target, [responses[0], again])


def test_a_start_that_is_none_is_found_before_data_is_made(tmp_path, capsys):
    from engine.checkpoint import ASSETS
    from engine.cli.train import main

    words = ["dflash", "--target", str(ASSETS / "kakeya-tiny-gemma4"), "--steps", "1", "--out", str(tmp_path / "out")]
    assert main([*words, "--start", str(ASSETS / "kakeya-tiny-qwen3-dflash")]) == 3
    assert "is no drafter to begin with: dflash_config" in capsys.readouterr().err
    assert not list(tmp_path.rglob("responses.json"))


def test_a_lag_beyond_any_block_is_refused(capsys):
    from engine.cli.train import main

    with pytest.raises(SystemExit) as ended:
        main(["dflash", "--out", "x", "--target", "y", "--steps", "1", "--lag", "65"])
    assert ended.value.code == 2
    assert "'65'; expected at most 64" in capsys.readouterr().err
