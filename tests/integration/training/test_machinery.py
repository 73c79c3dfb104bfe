"""The training machinery on a budget of seconds: it learns, repeats itself, resumes exactly, and writes what loads.

The bounds are for this machinery check only. What the shipped models reach is in their cards; the commands there
retrain them on another seed.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.errors import UsageError
from engine.training.corpus import read_corpus, word_pool

STEPS = 16
FEW_STEPS = 6
"""In as many the loss falls as far; where bfloat16 is emulated a step takes seconds, whatever the rows."""
LOSS_FALL = 2.0
SEED_SPREAD = 1.0


@pytest.fixture(scope="module")
def corpus():
    files = read_corpus()
    return files[::24], word_pool(files)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    from engine.training.tokenizer import train_tokenizer

    files, _ = corpus
    return train_tokenizer([file.text for file in files if not file.held_out], vocab_size=512)


def make_trainer(tmp_path, corpus, tokenizer, seed, family="gemma4", label="run"):
    from engine.training.recipe import Mix, Stage, target_recipe
    from engine.training.target import TargetRun, Trainer

    files, words = corpus
    stages = (Stage(1.0, 4, 128, Mix(copy=0.25, needle=0.25, code=0.25, structured=0.25)),)
    recipe = replace(
        target_recipe(family, "small", STEPS), stages=stages, warmup_copy_steps=0, warmup_steps=4, constant_until=1.0
    )
    run = TargetRun(recipe, seed, tmp_path / f"{label}-{seed}", evaluate_every=1000)
    return Trainer(run, tokenizer, files, words, documents=60)


def losses(trainer, count):
    return [trainer.train_step() for _ in range(count)]


def fell(curve):
    return sum(curve[-4:]) / 4 < curve[0] - LOSS_FALL


@pytest.mark.ci
def test_a_few_steps_lower_the_loss(tmp_path, corpus, tokenizer):
    assert fell(losses(make_trainer(tmp_path, corpus, tokenizer, 1, "qwen3"), FEW_STEPS))


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma4", "qwen3"])
def test_a_few_steps_lower_the_loss_on_two_seeds_alike(tmp_path, corpus, tokenizer, family):
    first = losses(make_trainer(tmp_path, corpus, tokenizer, 1, family), STEPS)
    second = losses(make_trainer(tmp_path, corpus, tokenizer, 2, family), STEPS)
    assert fell(first)
    assert fell(second)
    assert first != second
    assert abs(sum(first[-4:]) - sum(second[-4:])) / 4 < SEED_SPREAD


@pytest.mark.ci
def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(tmp_path, corpus, tokenizer):
    import torch

    whole = make_trainer(tmp_path, corpus, tokenizer, 3, label="whole")
    expected = whole.train(stop_after=2)
    make_trainer(tmp_path, corpus, tokenizer, 3, label="parts").train(stop_after=1)
    resumed = make_trainer(tmp_path, corpus, tokenizer, 3, label="parts")
    assert resumed.step == 1
    got = resumed.train(stop_after=2)
    for name, value in expected.state_dict().items():
        assert torch.equal(value, got.state_dict()[name]), name


@pytest.mark.ci
def test_a_target_is_gone_on_with_on_its_own_tokenizer_and_corpus_only(tmp_path, corpus, tokenizer):
    from engine.training.tokenizer import train_tokenizer

    files, words = corpus
    make_trainer(tmp_path, corpus, tokenizer, 5).save()
    with pytest.raises(UsageError, match=r"another training: corpus [0-9a-f]{16} instead of [0-9a-f]{16}\. Give"):
        make_trainer(tmp_path, (files[1:], words), tokenizer, 5)
    other = train_tokenizer([file.text for file in files[:12]], vocab_size=512)
    with pytest.raises(UsageError, match=r"another training: tokenizer [0-9a-f]{16} instead of [0-9a-f]{16}\. Give"):
        make_trainer(tmp_path, corpus, other, 5)


def test_two_targets_are_not_trained_in_one_work_folder(tmp_path, capsys):
    from engine.checkpoint import ASSETS
    from engine.cli.train import main
    from engine.training.checkpoint import only_training

    words = ["target", "--family", "qwen3", "--steps", "40", "--tokenizer", str(ASSETS / "kakeya-tiny-qwen3")]
    with only_training(tmp_path / "work"):
        assert main([*words, "--out", str(tmp_path / "model"), "--work", str(tmp_path / "work")]) == 2
    assert "another training works in" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_pair_is_trained_exported_and_loaded_by_name_and_layout(tmp_path, corpus, tokenizer):
    from engine.cards.loading import load_drafter, load_target
    from engine.cards.model_card import stored_as
    from engine.training.dflash import DrafterRun, train_drafter
    from engine.training.export import export_target

    trainer = make_trainer(tmp_path, corpus, tokenizer, 4)
    folder = tmp_path / "pair"
    export_target(trainer.train(stop_after=3), tokenizer, folder)
    config = json.loads((folder / "config.json").read_text())
    assert config["global_head_dim"] == 64
    assert config["num_global_key_value_heads"] == 1
    assert (config["dtype"], stored_as(folder, config)) == ("float32", "bfloat16")
    run = DrafterRun(seed=4, steps=3, rows=4, work=tmp_path / "drafter.work", evaluate_every=1000)
    made = train_drafter(folder, tmp_path / "pair-dflash", run)
    assert made.step == 3
    drafter = load_drafter(tmp_path / "pair-dflash")
    assert drafter.config["dflash_config"]["input_embedding_scale"] == pytest.approx(192**0.5)
    assert load_target(folder).model.config.vocab_size == 512
    again = train_drafter(folder, tmp_path / "again", run)
    assert again.step == 3
    names = set(drafter.state_dict())
    assert {"fc.weight", "hidden_norm.weight", "norm.weight", "layers.1.self_attn.k_norm.weight"} <= names
    assert len(names) == 11 * 2 + 3


@pytest.mark.parametrize("family", ["gemma4", "qwen3"])
def test_the_larger_preset_has_sixty_to_a_hundred_million_parameters(family):
    import torch
    import transformers

    from engine.training.network.drafter_model import DFlashNetwork, drafter_config
    from engine.training.recipe import target_config

    values = target_config(family, "60m", 2048)
    if family == "gemma4":
        config, kind = transformers.Gemma4TextConfig(**values), transformers.Gemma4ForCausalLM
    else:
        config, kind = transformers.Qwen3Config(**values), transformers.Qwen3ForCausalLM
    with torch.device("meta"):
        target = kind(config)
        drafter = DFlashNetwork(drafter_config(config.to_dict(), "60m", 8, 3))
    assert 60e6 <= sum(p.numel() for p in target.parameters()) <= 100e6
    ids = drafter.config["dflash_config"]["target_layer_ids"]
    assert len(set(ids)) == 5
    assert max(ids) < 11


@pytest.mark.slow
def test_the_commands_make_a_tokenizer_and_a_resumable_target(tmp_path, capsys):
    from engine.cli.train import main

    assert main(["tokenizer", "--out", str(tmp_path / "tok"), "--seed", "1"]) == 0
    arguments = ["target", "--family", "qwen3", "--steps", "40", "--tokenizer", str(tmp_path / "tok"), "--quiet"]
    arguments += ["--documents", "50", "--out", str(tmp_path / "model"), "--export-at"]
    assert main([*arguments, "2"]) == 0
    assert main([*arguments, "3"]) == 0
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["steps"] == 3
    assert record["command"].startswith("kakeya-engine train target --out model --seed 1")
    assert capsys.readouterr().out == ""
