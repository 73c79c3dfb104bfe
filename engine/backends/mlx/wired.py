"""Weights that stay in an Apple GPU's memory while something decodes, as mlx-lm's own generation keeps them.

Knows when to ask for it and to let go; what is asked of MLX is mlx-lm's. Decodes may overlap and end in any order, so
the first one asks and the last one lets go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generation_stream, wired_limit

Limit = Callable[[Any], AbstractContextManager[None]]


class WiredWeights:
    """The wired limit of this process, set while at least one decode runs and restored after the last."""

    def __init__(self, limit: Limit | None = None) -> None:
        self._limit = limit or _mlx_lm_limit
        self._held: AbstractContextManager[None] | None = None
        self._holders = 0

    @contextmanager
    def holding(self, module: Any) -> Iterator[None]:
        """Keep the limit set for a decode with the weights of ``module``; elsewhere than on Metal nothing happens."""
        if self._held is None:
            held = self._limit(module)
            # mlx-lm warns of a large model on the standard output, where the answer stands.
            with redirect_stdout(sys.stderr):
                held.__enter__()
            self._held = held
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if self._holders == 0:
                held, self._held = self._held, None
                held.__exit__(None, None, None)


def _mlx_lm_limit(module: Any) -> AbstractContextManager[None]:
    """Return mlx-lm's limit, restored once the streams that decode are drained."""
    return wired_limit(module, [mx.default_stream(mx.default_device()), generation_stream])
