"""How many secret codes each way to bound a cache finds, beside the native cache, task by task.

Prompts are as long as a target was trained to read, or holds. The prompt goes through the bounded cache in chunks,
question included, and the answer is decoded token by token. Which pages are shown is chosen for each chunk and token
anew. Bytes are those of the buffers when the answer is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import cache, partial
from multiprocessing import get_context
from statistics import median

from benchmarks.studies.study import Entry, Row, Study
from bridge.gate.stats.binomial import paired_difference_lower
from engine.checkpoint import ASSETS
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.none import NoDrafter
from engine.loading import Engine, load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import Prompt, PromptSet, answered, load_prompts
from engine.reports import token_digest
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

TARGETS = {"kakeya-tiny-qwen3": 5, "kakeya-tiny-gemma4": 2}
"""Each with the layer that finds needles alone."""
LENGTHS = {"kakeya-tiny-qwen3": 1900, "kakeya-tiny-gemma4": 3950}
"""Tokens of a prompt. The second target answers as well far beyond its training; sliding layers matter less there."""
TASKS = ("recall-one", "recall-four", "recall-chain", "recall-turns")
PARTS, PROMPTS, TOKENS, CHUNK, SEED = 15, 10, 28, 128, 5
BESIDE_PARTS = 3
"""Parts of the arms that nothing is claimed of."""
KEPT = "sink4+window64"
CLAIMED = ("native", "recent", "exact", "layer", "codes")
ARMS = (*CLAIMED, "attention", KEPT)


def layout_of(arm: str, exact: int) -> str:
    """Return the cache layout of an arm."""
    pages = f"{KEPT}+pages16x10"
    named = {"exact": f"{KEPT}+exact{exact}", "codes": pages, "attention": f"{pages}+stream"}
    named["layer"] = f"{pages}+layer{exact}"
    return named.get(arm, arm if arm in {"native", KEPT} else f"{pages}/{arm}")


def cases() -> Sequence[str]:
    """Return every part of the prompts of each task on every target and arm, a first part of all before a second."""
    return [
        f"{target}, {task}, {arm}, part {part}"
        for part in range(PARTS)
        for target in TARGETS
        for task in TASKS
        for arm in (ARMS if part < BESIDE_PARTS else CLAIMED)
    ]


def run(case: str, prompts: int = PROMPTS) -> list[Row]:
    """Return a row for every prompt: whether the code was found, and what was held and moved."""
    target, task, _, part = case.split(", ")
    # Neighbours in the file have their needles at neighbouring depths: each part takes prompts from all depths.
    numbers = range(len(_prompts(task, target).prompts))[int(part.removeprefix("part ")) :: PARTS][:prompts]
    return list(_workers().map(partial(_row, case), numbers))


def _row(case: str, number: int) -> Row:
    """Answer one prompt."""
    target, task, arm, _ = case.split(", ")
    engine, layout, prompt = _engine(target), layout_of(arm, TARGETS[target]), _prompts(task, target).prompts[number]
    with closing(engine.target.open((), CacheLayout.parse(layout))) as sequence:
        parts = Parts(sequence, NoDrafter(), engine.accept, FixedDepth(0), engine.backend.clock)
        steps = speculative(parts, prompt.ids, Stopping(TOKENS, frozenset(engine.target.info.stop_ids)), CHUNK)
        tokens = [token for step in steps for token in step.tokens]
        counts = sequence.page_counts()
        return {
            "prompt": prompt.id,
            "found": answered(prompt, Tokenizer(engine.folder).decode(tokens)),
            "kv_bytes": sequence.measured_bytes(),
            "pool_bytes": counts.pool_bytes,
            "index_bytes": counts.index_bytes,
            "pages_moved": counts.pages_moved,
            "bytes_read": counts.bytes_read,
            "rows_shown": counts.rows_shown,
        }


@cache
def _workers() -> ProcessPoolExecutor:
    """Return a process a core, each with its own models for as long as the study runs: nothing here is timed."""
    return ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), initializer=_one_thread)


def _one_thread() -> None:
    import torch  # noqa: PLC0415 - whoever shows the report needs none

    torch.set_num_threads(1)


@cache
def _prompts(task: str, target: str) -> PromptSet:
    """Return the packaged set, or one drawn by the same rule where its prompts are shorter than a target reads."""
    from engine.cards import recall_sets  # noqa: PLC0415 - whoever shows the report needs no torch
    from engine.cards.loading import load_target  # noqa: PLC0415
    from engine.training.corpus import corpus_record, read_corpus, word_pool  # noqa: PLC0415

    tokenizer = Tokenizer(resolve_model(target))
    if LENGTHS[target] == recall_sets.LENGTH:
        return load_prompts(task, tokenizer, target)
    files, pinned = read_corpus(), json.loads((ASSETS / "corpus.json").read_text("utf-8"))
    if corpus_record(files)["listing_sha256"] != pinned["listing_sha256"]:
        raise RuntimeError("another Python's library is another text to hide codes in; run this with the pinned one")
    words, texts = word_pool(files).training, [file.text for file in files if file.held_out]
    drawn = recall_sets.recall_prompts(task, load_target(ASSETS / target), texts, words, SEED, length=LENGTHS[target])
    encoded = ((prompt, tokenizer.encode(prompt.text)) for prompt in drawn)
    prompts = tuple(Prompt(prompt.id, prompt.kind, ids, token_digest(ids), prompt.expected) for prompt, ids in encoded)
    return PromptSet(task, recall_sets.RULES[task], prompts)


@cache
def _engine(target: str) -> Engine:
    folder = resolve_model(target)
    return open_engine(load_backend("torch", "cpu"), str(folder), own_drafter(folder))


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return by target and task how many codes native found, then of each arm codes, paired bound and saving."""
    lines = []
    for target in TARGETS:
        for task in TASKS:
            arms = {arm: _rows(entries, f"{target}, {task}, {arm}, ") for arm in ARMS}
            native = arms.pop("native")
            if native:
                beside = [_paired(arm, native, rows) for arm, rows in arms.items() if native.keys() & rows.keys()]
                right = f"native {sum(row['found'] for row in native.values())}/{len(native)}"
                lines.append(f"{target} {task}, {LENGTHS[target]} tokens: {', '.join([right, *beside])}")
    return lines


def _paired(arm: str, native: dict[str, Row], rows: dict[str, Row]) -> str:
    """Return how many codes an arm found of the prompts asked of both, Tango's lower bound, and how many times smaller.

    The bound is one-sided, 95 %, of the difference in percentage points; bytes are medians.
    """
    both = sorted(native.keys() & rows.keys())
    gained = sum(rows[prompt]["found"] and not native[prompt]["found"] for prompt in both)
    lost = sum(native[prompt]["found"] and not rows[prompt]["found"] for prompt in both)
    bound = 100 * paired_difference_lower(gained, lost, len(both), 0.95)
    sizes = [median(side[prompt]["kv_bytes"] for prompt in both) for side in (native, rows)]
    right = sum(rows[prompt]["found"] for prompt in both)
    return f"{arm} {right}/{len(both)} (> {bound:.0f} pp, {sizes[0] / sizes[1]:.1f}x)"


def _rows(entries: Sequence[Entry], begin: str) -> dict[str, Row]:
    """Return the rows of an arm by prompt."""
    return {row["prompt"]: row for entry in entries if entry["case"].startswith(begin) for row in entry["rows"]}


STUDY = Study(
    "page-recall",
    "How many hidden codes does each way to bound a cache find, by task?",
    cases,
    run,
    "an hour and a quarter",
    summary,
)
