"""Decode prompts with every row, with evicted rows made again here, and with such rows from a host elsewhere.

Whole decodes one after the other, without a drafter: what differs is who makes the rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.distributed.remote_rows import RestoreTraffic
from engine.drafters.none import NoDrafter
from engine.loading import Engine
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout


@dataclass(frozen=True, slots=True)
class RestoredDecode:
    """One decode.

    Attributes:
        tokens: what came out.
        prefill_s: seconds to the first token.
        decode_s: seconds behind it.
        held_bytes: what the target's caches hold at the end, rows that were made again with them.
        traffic: what came from elsewhere, all zeros where nothing did.
    """

    tokens: tuple[int, ...]
    prefill_s: float
    decode_s: float
    held_bytes: int
    traffic: RestoreTraffic


@dataclass(frozen=True, slots=True)
class RestoredTrial:
    """Decodes at most ``max_new`` tokens on an engine, up to its target's stop tokens."""

    engine: Engine
    max_new: int
    chunk_tokens: int = 512

    def decode(
        self, prompt: tuple[int, ...], layout: CacheLayout, restorer: Any = None, traffic: RestoreTraffic | None = None
    ) -> RestoredDecode:
        """Decode a prompt on a layout; ``restorer`` stands in for the target's own, and counts into ``traffic``."""
        engine = self.engine
        target: Any = engine.target
        before = _copied(traffic)
        began_s = time.perf_counter()
        sequence = target.open((), layout, restorer)
        parts = Parts(sequence, NoDrafter().open(), engine.accept, FixedDepth(0), engine.backend.clock, engine.resident)
        tokens: list[int] = []
        first_s = 0.0
        try:
            stopping = Stopping(self.max_new, frozenset(target.info.stop_ids))
            for step in speculative(parts, prompt, stopping, self.chunk_tokens):
                first_s = first_s or time.perf_counter()
                tokens += step.tokens
            ended_s, held_bytes = time.perf_counter(), sequence.measured_bytes()
        finally:
            sequence.close()
        after = _copied(traffic)
        spent = RestoreTraffic(
            after.sent - before.sent,
            after.received - before.received,
            after.positions - before.positions,
            after.asks - before.asks,
            after.waited_s - before.waited_s,
        )
        return RestoredDecode(tuple(tokens), first_s - began_s, ended_s - first_s, held_bytes, spent)


def _copied(traffic: RestoreTraffic | None) -> RestoreTraffic:
    if traffic is None:
        return RestoreTraffic()
    return RestoreTraffic(traffic.sent, traffic.received, traffic.positions, traffic.asks, traffic.waited_s)
