"""Model cards: everything a card says is measured here or recorded by the training command."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from engine.cards.acceptance import before_loop, measure_acceptance
from engine.cards.binomial import clopper_pearson
from engine.cards.card_text import card_markdown
from engine.cards.language import GreedySample, greedy_samples, held_out_language
from engine.cards.loading import EvaluatedTarget
from engine.cards.recall import ANSWER_TOKENS, measure_recall, needle_prompts, without_full_attention
from engine.checkpoint import weight_files
from engine.installed_prompts import SETS as INSTALLED
from engine.installed_prompts import installed_set
from engine.training.corpus import read_corpus, word_pool
from engine.training.package_prompts import MOST_PROMPT_TOKENS, RESPONSE_TOKENS

RECALL = (
    (480, 100, 1), (480, 25, 3), (1000, 41, 1), (1500, 41, 1), (1900, 61, 1), (2000, 41, 1),
    (4000, 41, 1), (8000, 21, 1), (16000, 11, 1),
)  # fmt: skip
"""Tokens of a prompt, prompts and needles; what a target has no positions for is left out."""
RECALLED_SHARE = 0.9
"""Of the codes at a length that counts as one the target reads."""
STRUCTURED_BUDGET, RAW_BUDGET = 640, 128
STRUCTURED_PROMPTS = 60
HUMANEVAL_PROMPTS, HUMANEVAL_BUDGET = 40, 96
SHOWN_SAMPLES = 2
SEED = 5
STORED = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
"""Names of dtypes for those of a file's header."""
LONGEST_DRAFTED = 2048
DrafterPrompts = dict[str, tuple[list[dict[str, Any]], int]]
"""By kind the prompts and the most tokens of an answer."""


def file_digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a model folder except the cards."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name not in {"card.json", "MODEL_CARD.md"}
    }


def spread(prompts: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return `count` of `prompts` at even steps through the set, so that every group in it is met."""
    count = min(count, len(prompts))
    return [prompts[index * len(prompts) // count] for index in range(count)]


def evaluate_target(target: EvaluatedTarget, prompt_sets: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Measure language, recall and greedy samples of a target."""
    files = read_corpus()
    words = word_pool(files)
    texts = [file.text for file in files if file.held_out]
    result: dict[str, Any] = {"held_out_language": dataclasses.asdict(held_out_language(target, texts))}
    recall = []
    positions = target.model.config.max_position_embeddings
    for length, count, needles in (each for each in RECALL if each[0] + ANSWER_TOKENS <= positions):
        prompts = needle_prompts(target, texts, words.training, length, count, seed=SEED, needles=needles)
        recall.append(dataclasses.asdict(measure_recall(target, prompts, length, needles)))
    result["recall"] = recall
    if "sliding_attention" in getattr(target.model.config, "layer_types", []):
        handles = without_full_attention(target)
        prompts = needle_prompts(target, texts, words.training, 480, 25, seed=SEED)
        result["recall_without_full_attention"] = dataclasses.asdict(measure_recall(target, prompts, 480))
        for handle in handles:
            handle.remove()
    structured = greedy_samples(target, spread(prompt_sets["code-structured"], STRUCTURED_PROMPTS), STRUCTURED_BUDGET)
    raw = greedy_samples(target, prompt_sets["code-raw"], RAW_BUDGET)
    result["samples"] = {
        "structured": sample_summary(structured, STRUCTURED_BUDGET),
        "raw": sample_summary(raw, RAW_BUDGET),
    }
    result["shown"] = [
        _shown(target, item, prompt_sets) for item in (*structured[:SHOWN_SAMPLES], *raw[:SHOWN_SAMPLES])
    ]
    return result


def sample_summary(samples: list[GreedySample], budget: int) -> dict[str, Any]:
    """Return natural ends, loops and repeats over `samples`."""
    ends = sum(item.stop_reason == "eos" for item in samples)
    onsets = sorted(item.loop_onset for item in samples if item.loop_onset is not None)
    return {
        "prompts": len(samples),
        "budget_tokens": budget,
        "natural_eos": dataclasses.asdict(clopper_pearson(ends, len(samples))),
        "looping": len(onsets),
        "loop_onset_median": onsets[len(onsets) // 2] if onsets else None,
        "output_tokens_mean": sum(len(item.tokens) for item in samples) / len(samples),
        "repeated_8gram_share_mean": sum(item.repeated_8gram_share for item in samples) / len(samples),
    }


def _shown(
    target: EvaluatedTarget, sample: GreedySample, prompt_sets: dict[str, list[dict[str, Any]]]
) -> dict[str, str]:
    texts = {prompt["id"]: prompt["text"] for prompts in prompt_sets.values() for prompt in prompts}
    return {
        "id": sample.prompt_id,
        "prompt": texts[sample.prompt_id],
        "continuation": target.tokenizer.decode(list(sample.tokens[:120])),
        "stop_reason": sample.stop_reason,
    }


def packaged_prompts(prompt_sets: dict[str, list[dict[str, Any]]]) -> DrafterPrompts:
    """Return both kinds of code prompts in the shipped words, with the most tokens of an answer."""
    return {
        "structured": (spread(prompt_sets["code-structured"], STRUCTURED_PROMPTS), STRUCTURED_BUDGET),
        "raw": (prompt_sets["code-raw"], RAW_BUDGET),
    }


def humaneval_prompts() -> DrafterPrompts:
    """Return HumanEval's functions to complete and to edit, as a target of other words is asked.

    Raises:
        UsageError: If the package that holds them is not installed.
    """
    return {name: (spread(installed_set(name)["prompts"], HUMANEVAL_PROMPTS), HUMANEVAL_BUDGET) for name in INSTALLED}


def evaluate_drafter(
    target: EvaluatedTarget, drafter: Any, prompts_by_kind: DrafterPrompts, block_sizes: tuple[int, ...]
) -> dict[str, Any]:
    """Measure acceptance before the first loop or end, beside the n-gram drafter, on each kind of prompts."""
    result: dict[str, Any] = {}
    for kind, (prompts, budget) in prompts_by_kind.items():
        samples = greedy_samples(target, prompts, budget)
        ids = {prompt["id"]: tuple(target.encode(prompt["text"])) for prompt in prompts}
        rows = []
        for block_size in block_sizes:
            neural, lookup = measure_acceptance(target, drafter, samples, ids, block_size)
            rows += [dataclasses.asdict(neural), dataclasses.asdict(lookup)]
        lengths = [len(before_loop(item)) for item in samples]
        result[kind] = {
            "acceptance": rows,
            "prompts": len(samples),
            "natural_eos": sum(item.stop_reason == "eos" for item in samples),
            "tokens_before_loop_mean": sum(lengths) / len(lengths),
        }
    return result


def write_card(folder: Path, card: dict[str, Any]) -> None:
    """Write card.json and the MODEL_CARD.md made from it."""
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    (folder / "MODEL_CARD.md").write_text(card_markdown(card))


def card_of(
    folder: Path, kind: str, evaluation: dict[str, Any], command: str, environment: dict[str, str]
) -> dict[str, Any]:
    """Return the card of a model folder: shape, digests, its training record and `evaluation`."""
    config = json.loads((folder / "config.json").read_text())
    training = json.loads((folder / "training.json").read_text())
    return {
        "schema": 1,
        "name": folder.name,
        "kind": kind,
        "architecture": config["architectures"][0],
        "model_type": config["model_type"],
        "parameters": training["parameters"],
        "vocab_size": config["vocab_size"],
        "context_tokens": read_tokens(evaluation, training),
        "dtype": "float32",
        "stored": stored_as(folder, config),
        "sha256": file_digests(folder),
        "training": training,
        "evaluation": {"command": command, "environment": environment} | evaluation,
    }


def stored_as(folder: Path, config: dict[str, Any]) -> str:
    """Return the words for how a folder's weights are stored, by its config and the headers of its files."""
    from safetensors import safe_open

    if "quantization" in config:
        return "{bits}-bit codes in groups of {group_size}".format(**config["quantization"])
    kinds: set[str] = set()
    for file in weight_files(folder):
        with safe_open(file, framework="np") as stream:
            kinds |= {str(stream.get_slice(name).get_dtype()) for name in stream.keys()}  # noqa: SIM118 - a file
    return " and ".join(sorted(STORED.get(kind, kind) for kind in kinds))


def read_tokens(evaluation: dict[str, Any], training: dict[str, Any]) -> int:
    """Return the longest prompts of which nearly all codes were recalled; a drafter's are those it was trained on."""
    if "recall" not in evaluation:
        return LONGEST_DRAFTED if training["corpus"] else MOST_PROMPT_TOKENS + RESPONSE_TOKENS
    shares = {row["length"]: row["proportion"] for row in evaluation["recall"]}
    read = [length for length, share in shares.items() if share["successes"] >= RECALLED_SHARE * share["trials"]]
    return max(read, default=0)
