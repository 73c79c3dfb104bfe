"""Whether every family's answers are the library's own, a family on a backend a case.

The targets are random and tiny, so that many prompts fit; they say nothing of speed.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies.study import Row, Study
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.loading import load_backend
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from tests.conformance.engine_families import stock
from tests.fakes import tiny_families, tiny_torch
from tests.fakes.scripted_drafter import ScriptedModel

BACKENDS = ("mlx", "torch")
PROMPTS = 24
BUDGET = 24
DEPTH = 7
LENGTHS = (1, tiny_families.WINDOW - 1, tiny_families.WINDOW, tiny_families.WINDOW + 3, 30, 61)
WRONG: dict[str, Callable[[int, int], bool]] = {
    "right then wrong": lambda _, index: index >= 3,
    "another place each step": lambda step, index: index == (step * 3 + 1) % (DEPTH + 1),
}


def cases() -> Sequence[str]:
    """Return every family on every backend."""
    return [f"{backend}, {kind}" for backend in BACKENDS for kind in tiny_families.CONFIGS]


def run(case: str, prompts: int = PROMPTS) -> list[Row]:
    """Return a row for every drafter: how many answers and tokens there were, and how many answers differed."""
    name, kind = case.split(", ")
    backend = load_backend(name, device="cpu" if name == "torch" else None)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        target = backend.load_target(tiny_families.write_family(root / "target", kind))
        drafter = tiny_torch.write_dflash(root / "drafter", dflash_config={"target_layer_ids": [0, 1, 3]})
        real = [NoDrafter(), NgramModel(min_tokens=1), backend.load_dflash(drafter, target)]
        counts: dict[str, Row] = {}
        for seed in range(prompts):
            prompt = prompt_of(seed)
            expected = stock.greedy(backend, target, prompt, BUDGET)
            scripted = {
                label: ScriptedModel(expected, len(prompt), tiny_families.VOCAB, wrong)
                for label, wrong in WRONG.items()
            }
            for label, model in ({model.info.name: model for model in real} | scripted).items():
                row = counts.setdefault(label, {"drafter": label, "answers": 0, "tokens": 0, "differ": 0})
                found = answer(backend, target, model, prompt)
                row["answers"] += 1
                row["tokens"] += len(found)
                row["differ"] += found != expected
    return list(counts.values())


def prompt_of(seed: int) -> tuple[int, ...]:
    """Return a random prompt; lengths go round, from one token to past every window."""
    chooser = random.Random(seed)
    return tuple(chooser.randrange(5, tiny_families.VOCAB) for _ in range(LENGTHS[seed % len(LENGTHS)]))


def answer(backend: Any, target: Any, drafter: Any, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Return what the engine decodes."""
    sequence = target.open(drafter.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, drafter.open(), backend.greedy(target), FixedDepth(DEPTH), backend.clock)
    return tuple(token for step in speculative(parts, prompt, Stopping(BUDGET), 16) for token in step.tokens)


STUDY = Study("families", "Does every family decode as the library's own model does?", cases, run)
