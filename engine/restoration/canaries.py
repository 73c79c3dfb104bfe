"""Whether a backend shows restored rows at all, and where they belong: the exact rows made again, and noise instead.

Each layer's own inputs are kept and its rows made of those again, so that what attends to them has to answer as the
native cache does. Rows made of noise have to change the answer. Where restored rows are never shown, the first fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.protocols import Backend
from engine.restoration.restorers import LayerInputs, full_layers
from engine.structure.layout import CacheLayout
from engine.types import Draft, Forward

IDENTITY_MOST = 1e-4
NOISE_LEAST = 0.1
_SCRAMBLE = 1e4


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


@dataclass(frozen=True, slots=True)
class KindCanary:
    """Both canaries of the full-attention layers of one kind, every other layer left as it is.

    Attributes:
        layer_kind: ``full``, or ``full_shared`` where later layers attend to the rows of these.
        layers: which they are.
        identity_logit_change: with rows made of the layers' own inputs.
        noise_logit_change: with rows made of noise.
        rows: restored rows of either.
    """

    layer_kind: str
    layers: tuple[int, ...]
    identity_logit_change: float
    noise_logit_change: float
    rows: int


def canaries_by_kind(
    backend: Backend, target: Any, prompt: tuple[int, ...], layout: CacheLayout
) -> tuple[KindCanary, ...]:
    """Run both canaries for each kind of full-attention layers apart, behind a prompt of more than the window."""
    structure = target.family.structure
    every = full_layers(structure)
    shared = frozenset(structure.sources[structure.owners :])
    kinds = {"full": tuple(layer for layer in every if layer not in shared)}
    kinds["full_shared"] = tuple(layer for layer in every if layer in shared)
    found = []
    for kind, layers in kinds.items():
        if layers:
            alone = replace(layout, exact=tuple(layer for layer in every if layer not in layers))
            seen = canaries(backend, target, prompt, alone, scrambled)
            found.append(KindCanary(kind, layers, seen.identity, seen.noise, seen.rows))
    return tuple(found)


def scrambled(features: Any) -> Any:
    """Return noise of the same shape: what is left of values once their leading digits are gone."""
    return (features * _SCRAMBLE).sin()


def input_restorer(target: Any, layout: CacheLayout, changed: Callable[[Any], Any] | None = None) -> LayerInputs:
    """Return what makes the rows that a layout evicts of the layers' own inputs, ``changed`` before they are kept."""
    family = target.family
    kept = tuple(layer for layer in full_layers(family.structure) if layer not in layout.exact)
    restorer = LayerInputs(kept, target.info.hidden_size, family.project, family.finish)
    return restorer if changed is None else replace(restorer, changed=changed)


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
    exact, noise = input_restorer(target, layout), input_restorer(target, layout, noisy)
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
