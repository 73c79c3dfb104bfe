"""The shipped targets load in plain transformers and mlx-lm, agree there, and retrieve."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.integration.training.conftest import ASSETS, TARGETS

MAX_LOGIT_DIFFERENCE = 3e-4


def hf_logits(target, ids):
    import torch

    with torch.no_grad():
        return target.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def assert_agree(expected, got):
    difference = float(np.abs(expected - got).max())
    assert difference <= MAX_LOGIT_DIFFERENCE
    top = np.sort(expected, axis=-1)
    clear = (top[:, -1] - top[:, -2]) > 2 * difference
    assert clear.mean() > 0.9
    assert (expected.argmax(-1) == got.argmax(-1))[clear].all()


@pytest.fixture(scope="module")
def mlx_model(target_folder):
    pytest.importorskip("mlx.core")
    mlx_lm = pytest.importorskip("mlx_lm")
    from engine.backends.mlx.models.opening import open_module

    # mlx-lm opens the folder as it does any, and computes in the dtype of its files.
    _, tokenizer = mlx_lm.load(str(target_folder))
    return open_module(target_folder), tokenizer


@pytest.mark.ci
@pytest.mark.parametrize("length", [500, pytest.param(1900, marks=pytest.mark.slow)])
def test_mlx_prefill_agrees_with_transformers(target, mlx_model, held_out_ids, length):
    import mlx.core as mx

    model, tokenizer = mlx_model
    ids = held_out_ids[:length]
    got = np.array(model(mx.array([ids]))[0].astype(mx.float32))
    assert len(ids) == length
    assert_agree(hf_logits(target, ids), got)
    assert tokenizer.encode("def f(x):") == target.encode("def f(x):")


def test_mlx_cached_blocks_and_single_tokens_agree_with_transformers(target, mlx_model, held_out_ids):
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    model, _ = mlx_model
    ids = held_out_ids[:400]
    cache = make_prompt_cache(model)
    pieces = [ids[:300], ids[300:308], ids[308:316], *([token] for token in ids[316:])]
    rows = [np.array(model(mx.array([piece]), cache=cache)[0].astype(mx.float32)) for piece in pieces]
    assert_agree(hf_logits(target, ids), np.concatenate(rows))


def test_transformers_cached_decode_agrees_with_its_own_full_pass(target, held_out_ids):
    import torch

    ids = held_out_ids[:260]
    cache, rows = None, []
    with torch.no_grad():
        for piece in (ids[:200], ids[200:208], *([token] for token in ids[208:])):
            output = target.model(input_ids=torch.tensor([piece]), past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            rows.append(output.logits[0].numpy())
    assert_agree(hf_logits(target, ids), np.concatenate(rows))


def recall(target, prompt_sets, length, count, needles=None):
    from engine.cards.recall import NeedlePrompt, measure_recall

    chosen = [prompt for prompt in prompt_sets["needle"] if prompt["id"].startswith(f"needle-{length}-")]
    chosen = chosen[:: len(chosen) // count][:count]
    prompts = [NeedlePrompt(tuple(target.encode(p["text"])), p["text"], p["expected"], 0.0) for p in chosen]
    assert len(prompts) == count
    return measure_recall(target, prompts, length).proportion.successes


@pytest.mark.ci
def test_most_of_a_few_needles_are_recalled(target, prompt_sets):
    assert recall(target, prompt_sets, 480, 12) >= 11


@pytest.mark.slow
def test_needles_are_recalled_at_480_and_1900_tokens(target, prompt_sets):
    assert recall(target, prompt_sets, 480, 100) >= 96
    assert recall(target, prompt_sets, 1900, 61) >= 59


@pytest.mark.ci
def test_recall_needs_the_full_attention_layers(prompt_sets):
    from engine.cards.loading import load_target
    from engine.cards.recall import without_full_attention

    target = load_target(ASSETS / "kakeya-tiny-gemma4")
    handles = without_full_attention(target)
    assert recall(target, prompt_sets, 480, 12) <= 1
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_folder_holds_everything_a_loader_asks_for(name):
    from safetensors import safe_open

    folder = ASSETS / name
    expected = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    expected |= {"generation_config.json", "MODEL_CARD.md", "card.json"}
    assert expected <= {path.name for path in folder.iterdir()}
    with safe_open(str(folder / "model.safetensors"), "np") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118 - not a dict
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "float32"
    assert config["max_position_embeddings"] >= 2048


def test_all_assets_together_stay_within_16_megabytes():
    assert sum(path.stat().st_size for path in ASSETS.rglob("*") if path.is_file()) <= 16_000_000


def test_what_a_requester_installs_of_the_assets_stays_within_1_5_megabytes():
    """Weights are left out of a wheel; everything else goes to each requester, who reads none of it."""
    files = [path for path in ASSETS.rglob("*") if path.is_file() and path.suffix != ".safetensors"]
    assert sum(path.stat().st_size for path in files) <= 1_500_000
