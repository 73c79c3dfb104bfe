"""Slots on a recorder without a card, and a decode that says what fell back."""

from __future__ import annotations

from typing import Any

from engine.backends.torch.graphs.slots import Slots
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Step
from tests.fakes.tape import Tape
from tests.fakes.tiny_torch import WINDOW
from tests.support.decoding import BUDGET

BLOCK = 8
LENGTHS = {"one token": 1, "at the window": WINDOW, "across": WINDOW + 3, "far past": 61}
CAPTURE = (0, 2, 4)


def slots(block_rows: int = BLOCK, smallest: int = 64) -> Slots:
    return Slots(Tape, block_rows, smallest=smallest, room=0)


def run(
    backend: Any, target: Any, drafter: Any, prompt: tuple[int, ...], depth: int = 7, **options: Any
) -> tuple[list[Step], dict[str, int]]:
    layout, chunk = options.get("layout", CacheLayout.NATIVE), options.get("chunk", 512)
    sequence = target.open(drafter.capture, layout)
    parts = Parts(sequence, drafter.open(), backend.greedy(target), FixedDepth(depth), backend.clock)
    steps = list(speculative(parts, prompt, Stopping(BUDGET), chunk))
    assert sequence.length == steps[-1].position
    return steps, sequence.fallbacks()
