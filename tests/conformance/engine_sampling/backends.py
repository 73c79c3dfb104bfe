"""What the suite needs of a backend, with plain lists at the edge."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine.types import Decision, Draft, Proposal
from engine.verification.rejection import Sampling


class SamplingBackend:
    """One backend's sampling module."""

    def __init__(self, name: str) -> None:
        pytest.importorskip({"torch": "torch", "mlx": "mlx.core"}[name], reason=f"{name} is not installed")
        self.name = name
        self.module: Any = importlib.import_module(f"engine.backends.{name}.sampling")
        # float64 on torch; Metal has no more than float32.
        self.tolerance = 1e-12 if name == "torch" else 2e-6

    def array(self, values: Any) -> Any:
        """Return floats or ids on the device."""
        numbers = np.asarray(values)
        if self.name == "torch":
            import torch

            return torch.from_numpy(numbers.copy())
        import mlx.core as mx

        kind = mx.float32 if numbers.dtype.kind == "f" else mx.int32
        return mx.array(numbers.tolist(), kind)

    def shape(self, logits: Sequence[Sequence[float]], settings: Sampling) -> np.ndarray:
        return np.array(self.module.shape(self.array(logits), settings).tolist())

    def decide(
        self,
        draft: Sequence[int],
        logits: Any,
        probs: Any,
        settings: Sampling,
        uniforms: Sequence[float],
        *,
        on_device: bool = False,
    ) -> Decision:
        tokens = self.array(np.array(draft, dtype=np.int64)) if on_device else tuple(draft)
        rows = None if probs is None else self.array(probs)
        return self.module.decide(
            Draft(tokens=tokens, count=len(draft), probs=rows), self.array(logits), settings, list(uniforms)
        )

    def draw(self, weights: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """Return the id that each row's uniform draws from its weights."""
        return np.array(self.module.draw(self.array(weights), self.array(uniforms)).tolist())

    def drawn(self, proposed: Sequence[Proposal], vocab_size: int, uniforms: Sequence[float]) -> np.ndarray:
        """Return the rows that a proposed token is tested against."""
        device = (self.array([0]).device,) if self.name == "torch" else ()
        return np.array(self.module.drawn(proposed, vocab_size, uniforms, *device)[1].tolist())

    def verify(self, target: Any, proposed: Any, tokens: Any, tests: Any, finals: Any) -> np.ndarray:
        """Return the committed token of every row."""
        passed, recovered = self.module.verify(
            self.array(target),
            None if proposed is None else self.array(proposed),
            self.array(tokens),
            self.array(tests),
            self.array(finals),
        )
        return np.where(np.array(passed.tolist()), tokens, np.array(recovered.tolist()))
