"""Prompt sets that ship with the engine: held-out words, templates, files; pinned by token digests."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.cards import recall_sets
from engine.cards.language import greedy_samples
from engine.cards.loading import EvaluatedTarget
from engine.cards.recall import needle_prompts
from engine.measurement.selection import read_packaged, write_packaged
from engine.reports.tokens import token_digest
from engine.training.corpus import SourceFile, WordPool, read_corpus, word_pool
from engine.training.structured import make_document, regular_words

SETS = ("code-structured", "code-raw", "needle", *recall_sets.TASKS)
LONG_TOKENS, SHORT_TOKENS = (300, 620), (48, 240)
LONG_COUNT, SHORT_COUNT, RAW_COUNT = 100, 100, 64
RAW_PROMPT_TOKENS = 96
NEEDLES = ((480, 100), (1900, 61))
GREEDY_LIMIT = 640
RULES = {
    "code-structured": (
        "Documents of engine.training.structured made from held-out words of at most two tokens and held-out templates "
        "(seed {seed}): "
        "the header is the prompt. Ids structured-long-*: the reference completion has 300 to 620 tokens; "
        "structured-short-*: 48 to 240. greedy_tokens is what each target needed to its own <eos>, null when it had "
        "not ended after 640 tokens: a claim with a token budget takes, in file order, the prompts whose greedy_tokens "
        "exceed the budget and are not null."
    ),
    "code-raw": (
        "The first lines of definitions of held-out library files, dedented (seed {seed}): 32 to 96 tokens, cut before "
        "a line break; nothing says how they go on."
    ),
    "needle": (
        "One secret code (drawn digits, key words from the training pool) hidden in held-out library code at evenly "
        "spread depths, asked for at the end (seed {seed}): "
        "100 prompts of 480 tokens and 61 of 1,900."
    ),
    **recall_sets.RULES,
}


@dataclass(frozen=True)
class StoredPrompt:
    """One prompt of a set, as stored."""

    id: str
    kind: str
    text: str
    expected: str | None
    reference_tokens: int | None


def structured_prompts(target: EvaluatedTarget, words: WordPool, seed: int) -> list[StoredPrompt]:
    """Make the long and the short structured prompts."""
    rng, regular = np.random.default_rng([seed, 41]), regular_words(target.tokenizer, words.held_out)
    kinds = [("long", LONG_TOKENS, LONG_COUNT), ("short", SHORT_TOKENS, SHORT_COUNT)]
    prompts: list[StoredPrompt] = []
    for label, (least, most), count in kinds:
        made: dict[str, int] = {}
        while len(made) < count:
            document = make_document(rng, regular, held_out=True)
            size = len(target.tokenizer.encode(document.completion, add_special_tokens=False).ids)
            if least <= size <= most:
                made.setdefault(document.prompt, size)
        prompts += [
            StoredPrompt(f"structured-{label}-{index:03d}", "structured", text, None, size)
            for index, (text, size) in enumerate(made.items())
        ]
    return prompts


def raw_prompts(target: EvaluatedTarget, files: tuple[SourceFile, ...], seed: int) -> list[StoredPrompt]:
    """Make prompts from definitions in held-out files, in shuffled order."""
    rng = np.random.default_rng([seed, 42])
    texts: list[str] = []
    for file in files:
        if not file.held_out:
            continue
        parts = [textwrap.dedent(part) for part in re.split(r"\n\n+", file.text)]
        texts += [_cut(target, part) for part in parts if part.startswith(("def ", "class "))]
    chosen = [texts[i] for i in rng.permutation(len(texts))]
    prompts = list(dict.fromkeys(text for text in chosen if text))[:RAW_COUNT]
    return [StoredPrompt(f"raw-{index:03d}", "raw", text, None, None) for index, text in enumerate(prompts)]


def _cut(target: EvaluatedTarget, text: str) -> str:
    head = ""
    for line in text.splitlines(keepends=True):
        if len(target.encode(head + line)) > RAW_PROMPT_TOKENS:
            break
        head += line
    head = head.rstrip("\n")
    return head if len(target.encode(head)) >= RAW_PROMPT_TOKENS // 3 else ""


def needle_set(
    target: EvaluatedTarget, files: tuple[SourceFile, ...], words: WordPool, seed: int
) -> list[StoredPrompt]:
    """Make the needle prompts of both lengths."""
    texts = [file.text for file in files if file.held_out]
    prompts = []
    for length, count in NEEDLES:
        for index, item in enumerate(needle_prompts(target, texts, words.training, length, count, seed=seed)):
            prompts.append(StoredPrompt(f"needle-{length}-{index:03d}", "needle", item.text, item.expected, None))
    return prompts


def recall_set(
    name: str, target: EvaluatedTarget, files: tuple[SourceFile, ...], words: WordPool, seed: int
) -> list[StoredPrompt]:
    """Make the prompts of a recall set."""
    texts = [file.text for file in files if file.held_out]
    made = recall_sets.recall_prompts(name, target, texts, words.training, seed)
    return [StoredPrompt(each.id, each.kind, each.text, each.expected, None) for each in made]


def build_sets(targets: list[EvaluatedTarget], seed: int) -> dict[str, dict[str, Any]]:
    """Build all sets; the first target's tokenizer measures lengths, every target contributes digests.

    Args:
        targets: Targets whose token digests and greedy lengths are recorded.
        seed: Seed of the draws.
    """
    files = read_corpus()
    words = word_pool(files)
    made = {
        "code-structured": structured_prompts(targets[0], words, seed),
        "code-raw": raw_prompts(targets[0], files, seed),
        "needle": needle_set(targets[0], files, words, seed),
        **{name: recall_set(name, targets[0], files, words, seed) for name in recall_sets.TASKS},
    }
    result = {}
    for name, prompts in made.items():
        greedy = (
            {target.name: greedy_lengths(target, prompts) for target in targets} if name == "code-structured" else {}
        )
        rows = [_row(prompt, targets, greedy) for prompt in prompts]
        result[name] = {"schema": 1, "set": name, "rule": RULES[name].format(seed=seed), "prompts": rows}
    return result


def _row(
    prompt: StoredPrompt, targets: list[EvaluatedTarget], greedy: dict[str, dict[str, int | None]]
) -> dict[str, Any]:
    row: dict[str, Any] = {"id": prompt.id, "kind": prompt.kind, "text": prompt.text, "expected": prompt.expected}
    row["token_digest"] = {target.name: token_digest(target.encode(prompt.text)) for target in targets}
    if prompt.reference_tokens is not None:
        row["reference_tokens"] = prompt.reference_tokens
        row["greedy_tokens"] = {name: lengths[prompt.id] for name, lengths in greedy.items()}
    return row


def greedy_lengths(target: EvaluatedTarget, prompts: list[StoredPrompt]) -> dict[str, int | None]:
    """Return by prompt id how many tokens the target's greedy continuation has to its `<eos>`, None beyond 640."""
    plain = [{"id": prompt.id, "kind": prompt.kind, "text": prompt.text} for prompt in prompts]
    samples = greedy_samples(target, plain, GREEDY_LIMIT)
    return {item.prompt_id: len(item.tokens) if item.stop_reason == "eos" else None for item in samples}


def write_sets(sets: dict[str, dict[str, Any]], folder: Path) -> None:
    """Write each set and `digests.json` with the sha256 of each one's JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, content in sets.items():
        raw = (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
        write_packaged(name, raw, folder)
        digests[f"{name}.json"] = hashlib.sha256(raw).hexdigest()
    (folder / "digests.json").write_text(json.dumps(digests, indent=1) + "\n")


def read_set(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the prompts of a set after checking its JSON against the pinned digest.

    Raises:
        ValueError: When it is not what `digests.json` pins.
    """
    raw = read_packaged(name, folder)
    pinned = json.loads((folder / "digests.json").read_text()).get(f"{name}.json")
    got = hashlib.sha256(raw).hexdigest()
    if got != pinned:
        raise ValueError(f"prompt set {name!r} has digest {got}, pinned is {pinned}; rebuild with `eval model prompts`")
    prompts: list[dict[str, Any]] = json.loads(raw)["prompts"]
    return prompts
