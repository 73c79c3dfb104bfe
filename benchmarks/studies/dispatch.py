"""What a step is made of: operations a forward, and its time beside reading the weights once.

A forward over few rows is bound by memory: its weights have to be read. The bound taken here is reading as many bytes
on the same machine, timed in turns with the step; the ratio is of processor time, which others on the machine move
less. Packaged target, the library's threads as the environment sets them. On MLX each step is taken both ways, in
turns: its graph built anew, and replayed as the engine decodes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.studies.study import Row, Study
from engine.loading import load_backend, resolve_model
from engine.structure.layout import CacheLayout
from engine.types import Draft

TARGET, PROMPT, TURNS = "kakeya-tiny-gemma4", 64, 30
DRAFTED = (0, 3, 7, 15)
BUILT, REPLAYED = "built anew", "replayed"
WAYS = {"mlx, both ways": (BUILT, REPLAYED), "torch": (BUILT,)}


def cases() -> Sequence[str]:
    """Return the backends."""
    return tuple(WAYS)


def run(case: str, turns: int = TURNS) -> list[Row]:
    """Return a row for every length of a draft and way, with medians in milliseconds."""
    name = case.partition(",")[0]
    backend = load_backend(name, device="cpu" if name == "torch" else None)
    target: Any = backend.load_target(resolve_model(TARGET))
    sequences = {way: opened(target, way) for way in WAYS[case]}
    accept, count = backend.greedy(target), {"mlx": primitives, "torch": operations}[name]
    copied = copier(4 * target.info.parameters)
    rows = []
    for drafted in DRAFTED:
        draft = Draft(tokens=tuple(range(9, 9 + drafted)), count=drafted)
        steps = {way: stepper(sequence, accept, draft) for way, sequence in sequences.items()}
        for step in steps.values():
            for _ in range(3):
                step()
        found = {way: count(sequence, draft) for way, sequence in sequences.items()}
        taken = [{way: spent(step) for way, step in steps.items()} | {"": spent(copied)} for _ in range(turns)]
        read_ms = median(turn[""]["processor"] for turn in taken)
        for way, number in found.items():
            processor_ms = median(turn[way]["processor"] for turn in taken)
            rows.append(
                {
                    "drafted": drafted,
                    "way": way,
                    "operations": number,
                    "step_ms": median(turn[way]["wall"] for turn in taken),
                    "step_processor_ms": processor_ms,
                    "weights_read_ms": read_ms,
                    "over_roofline": processor_ms / read_ms,
                }
            )
    return rows


def opened(target: Any, way: str) -> Any:
    """Return a sequence behind a prompt."""
    sequence = target.open((), CacheLayout.NATIVE)
    if way == BUILT and hasattr(sequence, "steps"):
        sequence.steps = None
    for _ in sequence.prefill((7,) * PROMPT, 512):
        pass
    return sequence


def stepper(sequence: Any, accept: Any, draft: Draft) -> Callable[[], None]:
    """Return what verifies a draft of which nothing stays but the bonus."""

    def step() -> None:
        begin = sequence.length
        accept.decide(draft, sequence.forward_block(8, draft))
        sequence.crop(begin + 1)

    return step


def spent(work: Callable[[], None]) -> dict[str, float]:
    """Return the milliseconds of a call by clock and by processor."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return {"wall": (time.perf_counter() - wall) * 1e3, "processor": (time.process_time() - processor) * 1e3}


def copier(size: int) -> Callable[[], None]:
    """Return what reads ``size`` bytes once."""
    held = np.ones(size // 4, np.float32)

    def read() -> None:
        float(held.max())

    return read


def primitives(sequence: Any, draft: Draft) -> int:
    """Return how many primitives MLX evaluates for a forward and its logits."""
    import mlx.core as mx  # noqa: PLC0415 - only one backend need be installed

    begin = sequence.length
    ids = mx.array((8, *draft.tokens), mx.int32)
    family = sequence.target.family
    stepped = None if sequence.steps is None else sequence.steps.forward(ids, sequence.caches, ())
    logits = family.head(family.forward(ids, sequence.caches, ())[0][0]) if stepped is None else stepped.logits
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        mx.export_to_dot(str(path), logits)
        found = path.read_text().count("rectangle")
    sequence.crop(begin + 1)
    return found


def operations(sequence: Any, draft: Draft) -> int:
    """Return how many operations torch dispatches for a forward and its logits."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - as above

    class Counting(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.found += 1
            return func(*args, **(kwargs or {}))

    begin = sequence.length
    with Counting() as counting:
        sequence.forward_block(8, draft)
    sequence.crop(begin + 1)
    return counting.found


STUDY = Study("dispatch", "How many operations is a step, and how long beside reading its weights?", cases, run)
