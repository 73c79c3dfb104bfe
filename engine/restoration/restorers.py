"""Ways to make the rows of a layer again, with the arrays of any library.

Shapes: N positions, F values captured of a position, L values kept of it, E values of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.checkpoint import read_object
from engine.drafters.dflash import DFlashConfig
from engine.restoration.settings import (
    CONTEXT,
    LayerWidths,
    RestorationSettings,
    check_drafter,
    check_fits,
    check_tensors,
    parse,
)
from engine.structure.decoder import Structure
from engine.types import DrafterInfo

Array = Any
Rows = tuple[Array, Array]
EMBEDDED = -1
"""The layer whose output is the input of layer 0, among captured ones."""
Finish = Callable[[int, Array, Array, Sequence[int]], Rows]
"""Norms and rotates what a layer's projections give, for so many positions: ``[1, heads, N, E]`` a side."""
Project = Callable[[int, Array], Rows]
"""Returns what a layer's projections make of its input: ``[N, heads * E]`` a side."""


class Restorer(Protocol):
    """What is kept of a position, and how rows are made of it."""

    @property
    def settings(self) -> RestorationSettings | None:
        """What it was fitted for; None where it is fitted for nothing."""

    @property
    def capture(self) -> tuple[int, ...]:
        """The layers whose outputs it reads, ascending, ``EMBEDDED`` among them."""

    def latents(self, features: Array) -> Array:
        """Return what to keep, ``[N, L]``, of outputs ``[N, F]``."""

    def rows(self, layer: int, latents: Array, first: int) -> Rows:
        """Return a layer's rows of positions from ``first`` on, as its cache would keep them."""


@dataclass(frozen=True)
class FTheta:
    """A linear map from what a drafter reads.

    Attributes:
        settings: of its file.
        tensors: of its file, by name.
        capture: the target layers that the drafter reads.
        read: makes its input ``[N, input_size]`` of their outputs.
        finish: the target's.
    """

    settings: RestorationSettings
    tensors: Mapping[str, Array]
    capture: tuple[int, ...]
    read: Callable[[Array], Array]
    finish: Finish

    def latents(self, features: Array) -> Array:
        """Return the input, or what the encoder makes of it."""
        given = self.read(features)
        return given if self.settings.whole else given @ self.tensors["encoder"]

    def rows(self, layer: int, latents: Array, first: int) -> Rows:
        """Return a layer's rows of positions from ``first`` on."""
        rank, whole = self.settings.rank, self.settings.whole
        keys, values = (latents, latents) if whole else (latents[:, :rank], latents[:, rank:])
        keys, values = keys @ self.tensors[f"layers.{layer}.keys"], values @ self.tensors[f"layers.{layer}.values"]
        return self.finish(layer, keys, values, range(first, first + int(latents.shape[0])))


class ContextDrafter(Protocol):
    """A drafter that reads what the target puts out."""

    @property
    def info(self) -> DrafterInfo:
        """Name and digest."""

    @property
    def config(self) -> DFlashConfig:
        """Its sizes."""

    @property
    def capture(self) -> tuple[int, ...]:
        """The target layers that it reads."""

    def context(self, features: Array) -> Array:
        """Return its one vector a position."""

    def context_rows(self, context: Array) -> Array:
        """Return what its layers make of that, neither normed nor rotated."""


def reading(drafter: ContextDrafter, name: str, cast: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return what makes the input called ``name`` of captured outputs, in the dtype that ``cast`` gives."""
    if name == CONTEXT:
        return lambda features: cast(drafter.context(features))
    return lambda features: cast(drafter.context_rows(drafter.context(features)))


def input_size(drafter: ContextDrafter, name: str) -> int:
    """Return how many values the input called ``name`` has."""
    config = drafter.config
    return config.hidden_size if name == CONTEXT else 2 * len(config.layers) * config.kv_head_count * config.head_dim


def f_theta(
    folder: Path, tensors: Mapping[str, Array], target: Any, drafter: ContextDrafter, cast: Callable[[Array], Array]
) -> FTheta:
    """Return the f_theta of a folder, once it is known to belong to a target and a drafter.

    Args:
        folder: With its config.json.
        tensors: Of its file, finite.
        target: A backend's target.
        drafter: A backend's drafter for it.
        cast: Brings an array to the target's device and dtype.

    Raises:
        ModelConfigError: If its config cannot be honoured.
        ModelMismatchError: If it was fitted for others.
        ModelWeightsError: If a tensor is not what the config says.
    """
    settings = parse(read_object(folder / "config.json"), folder.name)
    size = input_size(drafter, settings.input)
    check_fits(settings, folder.name, (target.info, drafter.info), size, full_widths(target.family))
    check_tensors(settings, folder.name, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
    named = {name: cast(tensor) for name, tensor in tensors.items()}
    return FTheta(settings, named, drafter.capture, reading(drafter, settings.input, cast), target.family.finish)


def lent_f_theta(
    folder: Path, tensors: Mapping[str, Array], drafter: ContextDrafter, cast: Callable[[Array], Array]
) -> FTheta:
    """Return the f_theta of a folder for a target elsewhere, which norms and rotates what is made here by itself.

    Args:
        folder: With its config.json.
        tensors: Of its file, finite.
        drafter: A backend's drafter.
        cast: Brings an array to the device and dtype of what the drafter borrows.

    Raises:
        ModelConfigError: If its config cannot be honoured.
        ModelMismatchError: If it was fitted for another drafter.
        ModelWeightsError: If a tensor is not what the config says.
    """
    settings = parse(read_object(folder / "config.json"), folder.name)
    check_drafter(settings, folder.name, drafter.info, input_size(drafter, settings.input))
    check_tensors(settings, folder.name, {name: tuple(tensor.shape) for name, tensor in tensors.items()})
    named = {name: cast(tensor) for name, tensor in tensors.items()}
    return FTheta(settings, named, drafter.capture, reading(drafter, settings.input, cast), _unfinished)


def _unfinished(_layer: int, keys: Array, values: Array, _positions: Sequence[int]) -> Rows:
    return keys, values


def full_layers(structure: Structure) -> tuple[int, ...]:
    """Return the full-attention layers that keep rows of their own."""
    kept = zip(structure.attending, structure.windows, strict=True)
    return tuple(layer for layer, window in kept if window is None)


def full_widths(family: Any) -> dict[int, LayerWidths]:
    """Return how many values the full-attention layers of a backend's decoder keep of a position."""
    found = {}
    for layer in full_layers(family.structure):
        attention = family.text.layers[layer].self_attn
        keys = int(attention.k_proj.weight.shape[0])
        projected = getattr(attention, "v_proj", None)
        found[layer] = LayerWidths(keys, keys if projected is None else int(projected.weight.shape[0]))
    return found


@dataclass(frozen=True)
class LayerInputs:
    """The canary: a layer's own input is kept, so that what is made again is what was evicted.

    Attributes:
        layers: the layers that are restored, ascending.
        size: the target's hidden size.
        project: the target's.
        finish: the target's.
        changed: what becomes of the inputs before they are kept.
    """

    layers: tuple[int, ...]
    size: int
    project: Project
    finish: Finish
    changed: Callable[[Array], Array] = lambda features: features

    @property
    def settings(self) -> RestorationSettings | None:
        """Return None: it is fitted for nothing."""
        return None

    @property
    def capture(self) -> tuple[int, ...]:
        """The layers before."""
        return tuple(layer - 1 for layer in self.layers)

    def latents(self, features: Array) -> Array:
        """Return the inputs."""
        return self.changed(features)

    def rows(self, layer: int, latents: Array, first: int) -> Rows:
        """Return a layer's rows of positions from ``first`` on."""
        begin = self.layers.index(layer) * self.size
        keys, values = self.project(layer, latents[:, begin : begin + self.size])
        return self.finish(layer, keys, values, range(first, first + int(latents.shape[0])))
