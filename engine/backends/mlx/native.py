"""mlx-lm's own autoregressive decoding, unchanged: the baseline of every MLX measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from engine.backends.mlx.target import MlxTarget
from engine.backends.mlx.wired import WiredWeights
from engine.decoding.prompt import check_prompt, room_tokens
from engine.stopping import Stopping
from engine.types import Step, StopReason


class _CountedModel:
    """Calls the model and counts the calls: ``generate_step`` sees a plain callable."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.calls = 0

    def __call__(self, ids: mx.array, cache: Any) -> mx.array:
        self.calls += 1
        return self.module(ids, cache=cache)


class MlxNative:
    """``mlx_lm.generate.generate_step`` with its native cache, under the wired limit that mlx-lm's own users get."""

    code_path = "mlx_lm.generate:generate_step"

    def __init__(self, target: MlxTarget, wired: WiredWeights) -> None:
        self.target = target
        self._wired = wired
        self._cache: list[Any] = []

    def decode(self, prompt: tuple[int, ...], stopping: Stopping, chunk: int) -> Iterator[Step]:
        """Yield one step per token; forwards are counted where they are called, the one queued ahead included.

        Raises:
            PromptError: If the prompt cannot be decoded.
        """
        check_prompt(prompt, self.target.info)
        stopping.room_tokens = room_tokens(len(prompt), self.target.info)
        model = _CountedModel(self.target.module)
        cache = make_prompt_cache(self.target.module)
        # Recurrent layers do not count positions; some layer attends.
        counting = next(layer for layer in cache if hasattr(layer, "offset"))
        counted, first = 0, True
        steps = generate_step(
            mx.array(prompt),
            model,
            max_tokens=stopping.remaining_tokens,
            prompt_cache=cache,
            prefill_step_size=chunk,
        )
        with self._wired.holding(self.target.module), closing(steps):
            for token, _ in steps:
                # When the first token arrives the forward after it is already queued: that one belongs to decoding.
                calls = model.calls - counted - (1 if first else 0)
                counted += calls
                self._cache = cache  # decodes may take turns
                emitted, stop = stopping.cut((token,))
                if stop is None and stopping.cancelled():
                    stop = StopReason.CANCELLED
                yield Step(
                    tokens=emitted,
                    committed=1,
                    position=int(counting.offset),
                    target_forwards=calls,
                    host_syncs=1,
                    prefill=first,
                    stop=stop,
                )
                if stop is not None:
                    return
                first = False

    def measured_bytes(self) -> int:
        """Return the bytes of the buffers in mlx-lm's cache."""
        return sum(int(layer.nbytes) for layer in self._cache)
