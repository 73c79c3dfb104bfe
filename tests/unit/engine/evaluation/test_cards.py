"""Cards state measured values and nothing else."""

from __future__ import annotations

import dataclasses
import gzip
import json
from argparse import ArgumentTypeError, Namespace

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from engine.cards.acceptance import before_loop
from engine.cards.binomial import clopper_pearson
from engine.cards.card_text import card_markdown
from engine.cards.language import GreedySample
from engine.cards.loading import load_target
from engine.cards.model_card import file_digests, sample_summary, spread, stored_as
from engine.cards.step_costs import step_costs
from engine.checkpoint import ASSETS
from engine.cli.main import main
from engine.errors import UsageError
from engine.studies.model_cards import drafter_prompts, model_folder
from engine.training.requests import SHIPPED
from tests.fakes import tiny_families
from tests.unit.engine.evaluation.test_installed_prompts import PROBLEMS, install


def sample(tokens, stop="budget", onset=None):
    return GreedySample("p", "raw", 4, tuple(tokens), stop, onset, 0.25)


def test_spread_meets_every_part_of_a_set_in_order():
    prompts = [{"id": str(index)} for index in range(10)]
    assert [item["id"] for item in spread(prompts, 5)] == ["0", "2", "4", "6", "8"]
    assert spread(prompts, 50) == prompts


def test_a_card_is_of_a_folder_here_or_of_a_model_that_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = tmp_path / "trained"
    trained.mkdir()
    (trained / "config.json").write_text("{}")
    assert model_folder("trained").samefile(trained)
    assert model_folder("kakeya-tiny-gemma4-dflash") == ASSETS / "kakeya-tiny-gemma4-dflash"
    with pytest.raises(ArgumentTypeError, match="no model 'nobodys': looked for config"):
        model_folder("nobodys")


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


COSTS = {
    "environment": {"backend": "mlx", "machine": "arm64"},
    "rows": {
        "verify": [
            {"context_tokens": context, "rows": rows, "seconds": [seconds, 9.0, 0.0]}
            for context, rows, seconds in [(64, 1, 0.01), (256, 1, 0.08), (256, 2, 0.1), (256, 4, 0.14), (256, 8, 0.2)]
        ],
        "draft": [
            {"context_tokens": 256, "drafted_tokens": count, "seconds": [seconds]}
            for count, seconds in [(1, 0.02), (3, 0.02), (7, 0.04)]
        ],
    },
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


def acceptance_row(mean, lower, upper, block_size=4, drafter="dflash"):
    return {"drafter": drafter, "block_size": block_size, "prompts": 40, "mean": mean, "lower": lower, "upper": upper,
            "pooled": mean}  # fmt: skip


def test_a_drafter_card_says_at_which_blocks_drafting_pays_on_the_machine_whose_costs_it_was_given(tmp_path):
    report = tmp_path / "verify-cost.json"
    report.write_text(json.dumps(COSTS))
    steps = step_costs(report)
    assert steps["context_tokens"] == 256
    assert steps["costs"] == pytest.approx({"2": 1.5, "4": 2.0, "8": 3.0})
    rows = [acceptance_row(1.7, 1.6, 1.8, 2), acceptance_row(2.0, 1.9, 2.1), acceptance_row(2.4, 2.1, 2.7, 8)]
    rows += [acceptance_row(9.0, 8.0, 9.9, 4, "ngram"), acceptance_row(9.0, 8.0, 9.9, 16)]
    group = {"acceptance": rows, "prompts": 40, "natural_eos": 3, "tokens_before_loop_mean": 80.0}
    evaluation = {"command": "x", "target": "x", "acceptance": {"humaneval": group}, "steps": steps}
    text = card_markdown(CARD | {"training": TRAINING | {"corpus": {}}, "evaluation": evaluation})
    assert "in plain steps of 80.0 ms after 256 tokens on mlx (arm64)" in text
    table = [line for line in text.splitlines() if line.startswith("| humaneval |")]
    assert table == [
        "| humaneval | 2 | 1.50 | 1.70 (1.60 to 1.80) | pays |",
        "| humaneval | 4 | 2.00 | 2.00 (1.90 to 2.10) | undecided |",
        "| humaneval | 8 | 3.00 | 2.40 (2.10 to 2.70) | does not pay |",
    ]
    assert "functions and manual pages of installed packages" in text
    assert "boilerplate" not in text


@pytest.mark.parametrize(
    "content",
    [
        None, "{", "[]", "{}", json.dumps({"rows": {"verify": [], "draft": []}, "environment": {}}),
        json.dumps(COSTS | {"rows": COSTS["rows"] | {"draft": []}}),
        json.dumps(COSTS | {"environment": {}}),
    ],
)  # fmt: skip
def test_what_is_no_report_of_costs_is_refused_with_the_command_that_makes_it(tmp_path, content):
    report = tmp_path / "verify-cost.json"
    if content is not None:
        report.write_text(content)
    with pytest.raises(
        UsageError, match=r"verify-cost\.json is no report .* `kakeya-engine eval verify-cost --drafter"
    ):
        step_costs(report)


def test_costs_of_steps_without_a_drafter_are_refused(capsys):
    target = str(ASSETS / "kakeya-tiny-qwen3")
    assert main(["eval", "model", "card", "--target", target, "--costs", "verify-cost.json"]) == 2
    assert "add --drafter FOLDER" in capsys.readouterr().err


def test_a_drafter_is_measured_on_prompts_in_the_words_of_its_target(tmp_path, monkeypatch):
    lines = "\n".join(json.dumps(problem) for problem in PROBLEMS)
    install(tmp_path / "site", monkeypatch, gzip.compress(lines.encode()))
    folder = tiny_families.write_family(tmp_path / "other", "llama")
    Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(folder / "tokenizer.json"))
    kinds = {
        name: list(drafter_prompts(load_target(target), Namespace(prompts=None)))
        for name, target in {"other": folder, "shipped": ASSETS / "kakeya-tiny-qwen3"}.items()
    }
    assert kinds == {"other": ["humaneval", "humaneval-edit"], "shipped": ["structured", "raw"]}


def test_answers_end_where_the_folder_of_a_target_says(tmp_path):
    folder = tiny_families.write_family(tmp_path, "llama")
    Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    target = load_target(folder)
    assert not target.speaks_shipped_words
    assert target.ends.stops[:2] == (7, 9)
    assert load_target(ASSETS / "kakeya-tiny-qwen3").ends == SHIPPED


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
