"""Muon for the matrices of the blocks, AdamW for embeddings and vectors, one schedule for both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Schedule:
    """Learning-rate share by step: linear warm-up, constant, then linear to `final`."""

    steps: int
    warmup: int
    constant_until: float
    final: float

    def share(self, step: int) -> float:
        """Return the multiplier of `step` (0-based)."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        start = self.constant_until * self.steps
        if step <= start:
            return 1.0
        progress = min(1.0, (step - start) / max(1.0, self.steps - start))
        return 1.0 - (1.0 - self.final) * progress


class InFloat32(TorchFunctionMode):
    """Where it is entered, what would go on in bfloat16 goes on in float32: Muon's iterations have no option for it."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call what was called, but for a cast to bfloat16."""
        if func is torch.Tensor.bfloat16:
            return args[0].to(torch.float32, copy=True)  # a cast makes another tensor, which is written to
        return func(*args, **(kwargs or {}))


class Optimisers:
    """The two optimisers, stepped and saved together."""

    def __init__(self, model: torch.nn.Module, matrix_lr: float, vector_lr: float, in_float32: bool) -> None:
        """Split the trainable parameters of `model`: 2-D block matrices to Muon, everything else to AdamW.

        Args:
            model: What is trained.
            matrix_lr: The learning rate of Muon.
            vector_lr: The learning rate of AdamW.
            in_float32: Whether Muon iterates in float32: where bfloat16 is emulated, its own takes a hundred times as
                long.
        """
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        matrices = [p for name, p in named if p.ndim == 2 and "embed_tokens" not in name]
        chosen = {id(p) for p in matrices}
        rest = [p for _, p in named if id(p) not in chosen]
        self.parameters = [p for _, p in named]
        self._precision: Callable[[], AbstractContextManager[Any]] = InFloat32 if in_float32 else nullcontext
        self.parts: list[tuple[Any, float]] = [
            (torch.optim.Muon(matrices, lr=matrix_lr, weight_decay=0.01, momentum=0.95), matrix_lr),
            (torch.optim.AdamW(rest, lr=vector_lr, betas=(0.9, 0.98), weight_decay=0.0), vector_lr),
        ]

    def step(self, share: float) -> float:
        """Clip the gradients to norm 1, step at `share` of both rates and return the norm before clipping."""
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, 1.0))
        for optimiser, rate in self.parts:
            for group in optimiser.param_groups:
                group["lr"] = rate * share
            with self._precision():
                optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return norm

    def state(self) -> list[dict[str, Any]]:
        """Return the state of both optimisers."""
        return [optimiser.state_dict() for optimiser, _ in self.parts]

    def restore(self, states: list[dict[str, Any]]) -> None:
        """Restore what `state` returned."""
        for (optimiser, _), state in zip(self.parts, states, strict=True):
            optimiser.load_state_dict(state)
