"""Cards state measured values and nothing else."""

from __future__ import annotations

import dataclasses
import json

from engine.cards.acceptance import before_loop
from engine.cards.binomial import clopper_pearson
from engine.cards.card_text import card_markdown
from engine.cards.language import GreedySample
from engine.cards.model_card import file_digests, sample_summary, spread, stored_as


def sample(tokens, stop="budget", onset=None):
    return GreedySample("p", "raw", 4, tuple(tokens), stop, onset, 0.25)


def test_spread_meets_every_part_of_a_set_in_order():
    prompts = [{"id": str(index)} for index in range(10)]
    assert [item["id"] for item in spread(prompts, 5)] == ["0", "2", "4", "6", "8"]
    assert spread(prompts, 50) == prompts


def test_a_summary_counts_natural_ends_and_loops():
    summary = sample_summary([sample([5, 1], "eos"), sample([7] * 60, onset=0), sample([8, 9])], 64)
    assert summary["natural_eos"]["successes"] == 1
    assert summary["looping"] == 1
    assert summary["loop_onset_median"] == 0
    assert summary["repeated_8gram_share_mean"] == 0.25


def test_only_what_precedes_a_loop_counts_for_acceptance():
    assert before_loop(sample(range(50), onset=3)) == (0, 1, 2)
    assert before_loop(sample([4, 5])) == (4, 5)


def test_digests_cover_the_model_and_not_its_cards(tmp_path):
    for name in ("config.json", "card.json", "MODEL_CARD.md"):
        (tmp_path / name).write_text("x")
    assert list(file_digests(tmp_path)) == ["config.json"]


def test_a_card_says_how_weights_are_stored(tmp_path):
    header = {
        name: {"dtype": kind, "shape": [1], "data_offsets": [2 * index, 2 * index + 2]}
        for index, (name, kind) in enumerate({"a": "BF16", "b": "F16", "c": "BF16"}.items())
    }
    data = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(data).to_bytes(8, "little") + data + bytes(6))
    assert stored_as(tmp_path, {}) == "bfloat16 and float16"
    codes = {"quantization": {"bits": 8, "group_size": 64, "mode": "affine"}}
    assert stored_as(tmp_path, codes) == "8-bit codes in groups of 64"


TRAINING = {
    "command": "kakeya-engine train dflash --seed 1",
    "seed": 1,
    "steps": 3,
    "tokens": 12345,
    "trained_s": 2.0,
    "threads": 1,
    "versions": {"python": "3.11.0"},
    "corpus": {"files": 2, "held_out_files": 1, "python": "3.11.0", "listing_sha256": "ab"},
    "curve": [{"step": 3, "tokens": 12345, "loss": 1.5}],
}
CARD = {
    "name": "x-dflash",
    "kind": "drafter",
    "architecture": "DFlashDraftModel",
    "model_type": "qwen3",
    "parameters": 1234567,
    "vocab_size": 64,
    "dtype": "float32",
    "stored": "bfloat16",
    "context_tokens": 2048,
    "training": TRAINING,
}


def test_a_drafter_card_shows_its_command_and_each_measured_row():
    row = {
        "drafter": "dflash",
        "block_size": 4,
        "prompts": 60,
        "mean": 3.21,
        "lower": 3.05,
        "upper": 3.4,
        "pooled": 3.3,
    }
    group = {"acceptance": [row], "prompts": 60, "natural_eos": 58, "tokens_before_loop_mean": 200.0}
    evaluation = {"command": "kakeya-engine eval model card", "target": "x", "acceptance": {"structured": group}}
    text = card_markdown(CARD | {"evaluation": evaluation})
    assert "    kakeya-engine train dflash --seed 1" in text
    assert "computed in float32, stored as bfloat16" in text
    assert "| structured (60) | 58/60 | dflash | 4 | 3.21 | 3.05 to 3.40 | 3.30 |" in text
    assert "| 3 | 1.5 |" in text


def test_a_target_card_shows_recall_with_its_interval_and_by_depth():
    share = dataclasses.asdict(clopper_pearson(3, 4))
    outcomes = [(0.1, True), (0.3, True), (0.6, False), (0.9, True)]
    recall = {"length": 480, "needles": 1, "proportion": share, "outcomes": outcomes}
    summary = sample_summary([sample([5, 1], "eos")], 64)
    evaluation = {
        "command": "kakeya-engine eval model card",
        "held_out_language": {"loss": 2.5, "accuracy": 0.5, "tokens": 1000},
        "recall": [recall],
        "samples": {"raw": summary},
        "shown": [{"id": "raw-000", "prompt": "def f", "continuation": "(x)", "stop_reason": "eos"}],
    }
    text = card_markdown(CARD | {"kind": "target", "evaluation": evaluation})
    assert f"| 480 | 1 | 3/4 | {share['lower']:.3f} to {share['upper']:.3f} |" in text
    assert "| 480 | 1/1 | 1/1 | 0/1 | 1/1 |" in text
    assert "def f⟶(x)" in text
