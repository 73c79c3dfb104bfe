"""Whether reading evicted rows from a file answers as the native cache does: packaged targets, every task and drafter.

A case is a target on a backend, a task, and how long its prompts are beside what stays in memory: as long, a little
longer, eight times as long. Each prompt is decoded natively without a drafter, and streamed in four ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from benchmarks.studies.study import Row, Study
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.drafters.none import NoDrafter
from engine.loading import Engine, load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import load_prompts
from engine.protocols import DrafterModel
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

BACKENDS = ("torch", "mlx")
TARGETS = ("kakeya-tiny-qwen3", "kakeya-tiny-gemma4")
TASKS = ("needle", "code-structured", "code-raw")
KEPT = "sink4+window64"
HELD = 68
LENGTHS = (HELD, HELD + 61, 8 * HELD)
PROMPTS, TOKENS, DEPTH = 3, 16, 5
STREAM, POOL = f"{KEPT}+stream", f"{KEPT}+pages16x2+stream"


def cases() -> Sequence[str]:
    """Return every target, backend, task and length."""
    return [
        f"{target}, {backend}, {task}, {length} tokens"
        for length in LENGTHS
        for task in TASKS
        for target in TARGETS
        for backend in BACKENDS
    ]


def run(case: str, prompts: int = PROMPTS) -> list[Row]:
    """Return a row for every way: answers, tokens, how many answers differ, bytes read per committed token."""
    target, backend, task, length = case.removesuffix(" tokens").split(", ")
    engine = _engine(backend, target)
    chosen = _prompts(engine, target, task, int(length), prompts)
    expected = [_native(engine, prompt) for prompt in chosen]
    ways: dict[str, tuple[DrafterModel, int, str]] = {
        "none": (NoDrafter(), 0, STREAM),
        "none, pool": (NoDrafter(), 0, POOL),
        "ngram": (NgramModel(), DEPTH, STREAM),
        "dflash": (engine.drafter, DEPTH, STREAM),
    }
    rows = []
    for way, (drafter, depth, layout) in ways.items():
        row: Row = {
            "way": way,
            "layout": layout,
            "answers": 0,
            "tokens": 0,
            "forwards": 0,
            "bytes_read": 0,
            "differ": 0,
        }
        for prompt, native in zip(chosen, expected, strict=True):
            sequence = engine.target.open(drafter.capture, CacheLayout.parse(layout))
            parts = Parts(sequence, drafter.open(), engine.accept, FixedDepth(depth), engine.backend.clock)
            steps = list(speculative(parts, prompt, Stopping(TOKENS, frozenset())))
            found = [token for step in steps for token in step.tokens]
            row["answers"] += 1
            row["tokens"] += len(found)
            row["forwards"] += sum(step.target_forwards for step in steps if not step.prefill)
            row["bytes_read"] += sequence.page_counts().bytes_read
            row["differ"] += found != native
            sequence.close()
        rows.append(row)
    return rows


def _native(engine: Engine, prompt: tuple[int, ...]) -> list[int]:
    sequence = engine.target.open((), CacheLayout.NATIVE)
    steps = autoregressive(sequence, engine.accept, prompt, Stopping(TOKENS, frozenset()))
    return [token for step in steps for token in step.tokens]


def _prompts(engine: Engine, target: str, task: str, length: int, count: int) -> list[tuple[int, ...]]:
    """Return the ends of prompts of a task, filled up from the front with those before them."""
    prompts = load_prompts(task, Tokenizer(engine.folder), target).spread(4 * count).prompts
    ids = [[token for prompt in prompts[: index + 4] for token in prompt.ids] for index in range(0, 4 * count, 4)]
    return [tuple(each[-length:]) for each in ids]


@cache
def _engine(backend: str, target: str) -> Engine:
    folder = resolve_model(target)
    return open_engine(load_backend(backend, "cpu" if backend == "torch" else None), str(folder), own_drafter(folder))


STUDY = Study("streamed-answers", "Does a streamed cache answer as the native one?", cases, run)
