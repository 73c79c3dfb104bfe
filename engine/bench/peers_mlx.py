"""mlx-lm as its users call it: ``generate_step`` alone, and with a draft model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import speculative_generate_step

from engine.backends.mlx.models.opening import open_module
from engine.bench.peer import Contestant, NativePeer, stopping
from engine.bench.turns import HeldDecode, Pulled
from engine.errors import UsageError
from engine.loading import Engine

DRAFT_TOKENS = 3


@dataclass(frozen=True)
class DraftModelPeer:
    """``mlx_lm.generate.speculative_generate_step`` with a small model of the same vocabulary."""

    engine: Engine
    module: Any
    draft: Any
    name: str = "mlx-lm draft model"
    code_path: str = "mlx_lm.generate:speculative_generate_step"

    def start(self, prompt: tuple[int, ...], budget_tokens: int) -> HeldDecode:
        """Return a decode; mlx-lm yields token by token."""
        return Pulled(self._tokens(prompt, budget_tokens), self.engine.backend.clock)

    def _tokens(self, prompt: tuple[int, ...], budget_tokens: int) -> Generator[tuple[int, ...]]:
        rule = stopping(self.engine, prompt, budget_tokens)
        steps = speculative_generate_step(
            mx.array(prompt), self.module, self.draft, num_draft_tokens=DRAFT_TOKENS, max_tokens=budget_tokens
        )
        with closing(steps):
            for token, *_ in steps:
                emitted, stop = rule.cut((int(token),))
                yield emitted
                if stop is not None:
                    break


def mlx_peers(engine: Engine, module: Any, draft_model: Path | None) -> list[Contestant]:
    """Return mlx-lm's contestants.

    Raises:
        UsageError: If a draft model is given for a target with sliding layers: mlx-lm's mode is silently wrong there.
    """
    peers: list[Contestant] = [NativePeer(engine, "mlx-lm generate_step")]
    if draft_model is not None:
        if engine.target.info.sliding_window is not None:
            raise UsageError(
                "mlx-lm's draft-model mode crops a wrapped sliding cache and emits wrong tokens there; "
                "give --draft-model with a full-attention target"
            )
        draft = open_module(draft_model)
        mx.eval(draft.parameters())  # no turn of it pays for reading the file
        peers.append(DraftModelPeer(engine, module, draft))
    return peers
