"""The shipped drafters: accepted by transformers' own DFlash with the same tokens, and better than prompt lookup."""

from __future__ import annotations

import json

import pytest

from engine.cards.acceptance import dflash_walk, measure_acceptance
from engine.cards.language import greedy_samples
from engine.cards.model_card import spread

pytestmark = pytest.mark.ci

BUDGET, FEW_TOKENS = 640, 160
"""Answers of sixty prompts may end by themselves; those of a few are cut: a drafter shows early what it is worth."""


def native_drafter(folder):
    """Return the same weights in transformers' DFlash class, under its names."""
    from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

    from engine.backends.torch.dflash.stored import read_drafter_tensors
    from engine.drafters.dflash import parse

    config = json.loads((folder / "config.json").read_text())
    names = [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "hidden_act",
        "rms_norm_eps",
        "attention_bias",
        "max_position_embeddings",
        "rope_parameters",
        "layer_types",
        "block_size",
    ]
    values = {name: config[name] for name in names}
    chosen = {name: config["dflash_config"][name] for name in ("mask_token_id", "target_layer_ids")}
    model = MuseGlimmerAssistantModel(MuseGlimmerAssistantConfig(**values, **chosen))
    renamed = {"fc.weight": "encoder.fc.weight", "hidden_norm.weight": "encoder.output_norm_enc.weight"}
    stored = read_drafter_tensors(folder, parse(config))
    weights = {renamed.get(name, name): value for name, value in stored.items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert not missing
    return model.float().eval()


def native_run(target, native, prompt, budget):
    """Generate with transformers' DFlash and count its target forwards."""
    import torch

    forwards = []
    hook = target.model.register_forward_pre_hook(lambda *_: forwards.append(1))
    ids = torch.tensor([prompt])
    output = target.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        assistant_model=native,
        speculation_type="dflash",
        do_sample=False,
        max_new_tokens=budget,
    )
    hook.remove()
    return tuple(output[0, len(prompt) :].tolist()), len(forwards)


def test_transformers_own_dflash_gives_the_same_tokens_and_acceptance(target, drafter, drafter_folder, prompt_sets):
    native = native_drafter(drafter_folder)
    block_size = drafter.config["block_size"]
    for prompt in spread(prompt_sets["code-structured"], 2):
        ids = target.encode(prompt["text"])
        sample = greedy_samples(target, [prompt], 96)[0]
        tokens, forwards = native_run(target, native, ids, len(sample.tokens))
        assert tokens == sample.tokens
        steps = dflash_walk(target, drafter, [*ids, *sample.tokens], len(ids), block_size).accepted_per_step
        # One forward is the prefill; transformers drafts no further than the budget, so its last steps may differ.
        assert abs((forwards - 1) - len(steps)) <= 1


def measured(target, drafter, prompt_sets, count, budget):
    prompts = spread(prompt_sets["code-structured"], count)
    samples = greedy_samples(target, prompts, budget)
    ids = {prompt["id"]: tuple(target.encode(prompt["text"])) for prompt in prompts}
    return samples, *measure_acceptance(target, drafter, samples, ids, 4)


def test_a_few_structured_prompts_are_accepted_beyond_prompt_lookup(target, drafter, prompt_sets):
    _, neural, lookup = measured(target, drafter, prompt_sets, 4, FEW_TOKENS)
    assert neural.mean > lookup.mean
    assert neural.mean > 1.5


@pytest.mark.slow
def test_sixty_structured_prompts_are_accepted_beyond_prompt_lookup(target, drafter, prompt_sets):
    _, neural, lookup = measured(target, drafter, prompt_sets, 60, BUDGET)
    assert neural.lower >= 2.0
    assert neural.mean > lookup.mean


@pytest.mark.slow
def test_fifty_of_sixty_structured_prompts_end_naturally(target, prompt_sets):
    samples = greedy_samples(target, spread(prompt_sets["code-structured"], 60), BUDGET)
    assert sum(sample.stop_reason == "eos" for sample in samples) >= 50


def test_the_config_says_how_to_scale_the_raw_table_and_where_features_come_from(target, drafter):
    config = drafter.config
    scale = config["dflash_config"]["input_embedding_scale"]
    hidden = target.model.config.hidden_size
    assert scale == pytest.approx(hidden**0.5 if "gemma" in target.name else 1.0)
    assert max(config["dflash_config"]["target_layer_ids"]) < config["num_target_layers"] - 1
    assert config["num_target_layers"] == target.model.config.num_hidden_layers
    assert config["architectures"] == ["DFlashDraftModel"]


def test_the_mask_row_is_no_outlier_of_the_embedding_table(target, drafter):
    norms = target.model.model.embed_tokens.weight.norm(dim=1)
    mask = norms[drafter.config["dflash_config"]["mask_token_id"]]
    assert float(mask) == pytest.approx(float(norms.median()), rel=0.05)
