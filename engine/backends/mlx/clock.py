"""Time on MLX: a reading waits for every stream the engine or mlx-lm may have work on."""

from __future__ import annotations

import time

import mlx.core as mx
from mlx_lm.generate import generation_stream


class MlxClock:
    """Monotonic nanoseconds; ``now_ns`` first drains the default stream and mlx-lm's own generation stream."""

    eager = False
    """A call builds a graph; the read at the end of a step waits for all of it."""

    def now_ns(self) -> int:
        """Synchronise both streams, then read the clock.

        ``mx.synchronize()`` alone waits for the default stream only, and ``generate_step`` runs on another one.
        """
        mx.synchronize()
        mx.synchronize(generation_stream)
        return time.perf_counter_ns()

    def host_ns(self) -> int:
        """Read the clock without waiting."""
        return time.perf_counter_ns()
