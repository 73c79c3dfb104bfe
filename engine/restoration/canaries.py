"""Whether a backend shows restored rows at all, and where they belong: the exact rows made again, and noise instead.

Each layer's own inputs are kept and its rows made of those again, so that what attends to them has to answer as the
native cache does. Rows made of noise have to change the answer. Where restored rows are never shown, the first fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.protocols import Backend
from engine.restoration.restorers import LayerInputs, full_layers
from engine.structure.layout import CacheLayout
from engine.types import Draft, Forward

IDENTITY_MOST = 1e-4
NOISE_LEAST = 0.1


@dataclass(frozen=True, slots=True)
class Canaries:
    """The largest difference of a logit from the native cache's, and how many rows were restored for each.

    Attributes:
        identity: with rows made of the layers' own inputs.
        noise: with rows made of noise.
        rows: restored rows of either, over layers and forwards.
    """

    identity: float
    noise: float
    rows: int

    @property
    def passed(self) -> bool:
        """Whether restored rows are shown, and where they belong."""
        return self.rows > 0 and self.identity <= IDENTITY_MOST and self.noise > NOISE_LEAST


def canaries(
    backend: Backend, target: Any, prompt: tuple[int, ...], layout: CacheLayout, noisy: Callable[[Any], Any]
) -> Canaries:
    """Run both canaries behind a prompt of more than the window.

    Args:
        backend: Whose target it is.
        target: The target.
        prompt: Its last eight tokens are forwarded as one block.
        layout: With a rank, which does not matter.
        noisy: Returns noise of an array's shape and size.
    """
    family = target.family
    kept = tuple(layer for layer in full_layers(family.structure) if layer not in layout.exact)
    exact = LayerInputs(kept, target.info.hidden_size, family.project, family.finish)
    noise = LayerInputs(kept, target.info.hidden_size, family.project, family.finish, noisy)
    native, _ = _answer(target, CacheLayout.NATIVE, None, prompt)
    same, rows = _answer(target, layout, exact, prompt)
    other, _ = _answer(target, layout, noise, prompt)
    return Canaries(backend.apart(native, same), backend.apart(native, other), rows)


def _answer(
    target: Any, layout: CacheLayout, restorer: LayerInputs | None, prompt: tuple[int, ...]
) -> tuple[Forward, int]:
    """Return the forward of the prompt's end, and how many rows were restored for it."""
    sequence = target.open((), layout, restorer)
    block = prompt[-8:]
    for _ in sequence.prefill(prompt[:-8], 512):
        pass
    forward = sequence.forward_block(block[0], Draft(tokens=block[1:], count=len(block) - 1))
    return forward, 0 if sequence.latents is None else sequence.latents.rows_made
