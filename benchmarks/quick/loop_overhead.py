"""What the decoding loop costs beside the calls it makes, on a random target of over 29 million parameters.

Every arm (backend, with and without drafts) decodes the same prompts in turn, in an order drawn anew for each. A step's
time and the time inside its calls are read in the same run, so the share is a ratio within it; timing the calls costs
time too, which is charged to the loop. Random weights cost what trained ones cost; what they say does not matter.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.quick.figures import Figure
from engine.bench.overhead import Overhead, loop_overhead
from engine.decoding.depth import FixedDepth
from engine.drafters.ngram import NgramModel
from engine.loading import BACKENDS, Engine, load_backend, open_engine

LEAST_PARAMETERS = 29_000_000
AT_MOST_PERCENT = 5.0
SHAPE: dict[str, Any] = {
    "vocab_size": 16_384,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
PROMPT_TOKENS, DEPTH = 64, 3


def measure(repeats: int = 12, tokens: int = 128) -> list[Figure]:
    """Return the loop's share of a step by arm, in percent, over ``repeats`` prompts and ``tokens`` after each."""
    with random_target() as folder:
        engines = {name: _engine(name, folder) for name in BACKENDS}
        arms = {f"{name}, plain": (engine, 0) for name, engine in engines.items()}
        arms |= {
            f"{name}, n-gram drafts": (replace(engine, drafter=NgramModel(min_tokens=1)), DEPTH)
            for name, engine in engines.items()
        }
        parameters = min(engine.target.info.parameters for engine in engines.values())
        if parameters < LEAST_PARAMETERS:
            raise ValueError(f"the target has {parameters} parameters; expected at least {LEAST_PARAMETERS}")
        overheads = _interleaved(arms, repeats, tokens)
    figures = [Figure("target", round(parameters / 1e6, 1), "million parameters")]
    for name, parts in overheads.items():
        steps = sum(part.steps for part in parts)
        figures.append(Figure(f"{name}: loop, {steps} steps", round(_share(parts) * 100, 2), "%", AT_MOST_PERCENT))
    return figures


@contextmanager
def random_target(seed: int = 0) -> Iterator[Path]:
    """Write the target into a folder that is gone afterwards."""
    torch.manual_seed(seed)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as made:
        module: Any = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE)).float()
        module.save_pretrained(Path(made) / "random")
        yield Path(made) / "random"


def _engine(name: str, folder: Path) -> Engine:
    return open_engine(load_backend(name, "cpu" if name == "torch" else None), str(folder), None)


def _interleaved(arms: dict[str, tuple[Engine, int]], repeats: int, tokens: int) -> dict[str, list[Overhead]]:
    """Decode one new prompt a turn on every arm, the first turn as a warm-up."""
    chooser = random.Random(0)
    overheads: dict[str, list[Overhead]] = {name: [] for name in arms}
    for turn in range(1 + repeats):
        prompt = tuple(chooser.randrange(SHAPE["vocab_size"]) for _ in range(PROMPT_TOKENS))
        names = list(arms)
        chooser.shuffle(names)
        for name in names:
            engine, depth = arms[name]
            part = loop_overhead(engine, prompt, tokens, FixedDepth(depth))
            if turn:
                overheads[name].append(part)
    return overheads


def _share(parts: list[Overhead]) -> float:
    """Return the loop's share of all decode time of an arm."""
    decode_s = sum(part.decode_s for part in parts)
    return (decode_s - sum(part.calls_s for part in parts)) / decode_s
