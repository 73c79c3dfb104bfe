"""What a step is made of: operations a forward, and its time beside reading the weights once.

A forward over few rows is bound by memory: its weights have to be read. The bound taken here is reading as many bytes
on the same machine, timed in turns with the step; the ratio is of processor time, which others on the machine move
less. Packaged target, the library's threads as the environment sets them.
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


def cases() -> Sequence[str]:
    """Return the backends."""
    return ("mlx", "torch")


def run(case: str, turns: int = TURNS) -> list[Row]:
    """Return a row for every length of a draft, with medians in milliseconds."""
    backend = load_backend(case, device="cpu" if case == "torch" else None)
    target: Any = backend.load_target(resolve_model(TARGET))
    sequence = target.open((), CacheLayout.NATIVE)
    for _ in sequence.prefill((7,) * PROMPT, 512):
        pass
    accept, count = backend.greedy(target), {"mlx": primitives, "torch": operations}[case]
    weights = 4 * target.info.parameters
    copied = copier(weights)
    rows = []
    for drafted in DRAFTED:
        draft = Draft(tokens=tuple(range(9, 9 + drafted)), count=drafted)

        def step(draft: Draft = draft) -> None:
            begin = sequence.length
            accept.decide(draft, sequence.forward_block(8, draft))
            sequence.crop(begin + 1)

        found = count(sequence, draft)
        pairs = [(spent(step), spent(copied)) for _ in range(turns + 3)][3:]
        rows.append(
            {
                "drafted": drafted,
                "operations": found,
                "step_ms": median(one["wall"] for one, _ in pairs),
                "step_processor_ms": median(one["processor"] for one, _ in pairs),
                "weights_read_ms": median(one["processor"] for _, one in pairs),
                "over_roofline": median(one["processor"] for one, _ in pairs)
                / median(bound["processor"] for _, bound in pairs),
            }
        )
    return rows


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
    """Return how many primitives MLX builds for a forward and its logits."""
    import mlx.core as mx  # noqa: PLC0415 - only one backend need be installed

    begin = sequence.length
    forward = sequence.forward_block(8, draft)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        mx.export_to_dot(str(path), forward.logits)
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
