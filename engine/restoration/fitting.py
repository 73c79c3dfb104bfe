"""The closed form of f_theta: ridge regression on sums over positions, then the best map of a rank.

Nothing but sums is kept of the episodes, so a fit that was killed goes on from the last episode it counted.

Shapes: N positions, I values of the input, W values of a layer's keys or values, R rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from engine.restoration.settings import RestorationSettings

Side = tuple[int, str]
"""A layer, and ``keys`` or ``values``."""
RIDGE = 1e-3
"""What is added to the squares of the inputs, as a share of their mean."""


@dataclass
class Sums:
    """Products of inputs and targets, summed over positions in double precision.

    Attributes:
        squares: of the inputs, ``[I, I]``.
        products: of inputs and targets by side, ``[I, W]``.
        norms: of the targets by side: their squares.
        episodes: how many were counted.
    """

    squares: torch.Tensor | None = None
    products: dict[Side, torch.Tensor] = field(default_factory=dict)
    norms: dict[Side, float] = field(default_factory=dict)
    episodes: int = 0

    def add(self, inputs_NI: torch.Tensor, targets: Mapping[Side, torch.Tensor]) -> None:
        """Count one episode."""
        given = inputs_NI.double()
        squares = given.T @ given
        self.squares = squares if self.squares is None else self.squares + squares
        for side, target_NW in targets.items():
            wide = target_NW.double()
            product, norm = given.T @ wide, float(wide.square().sum())
            self.products[side] = self.products[side] + product if side in self.products else product
            self.norms[side] = self.norms.get(side, 0.0) + norm
        self.episodes += 1

    def state(self) -> dict[str, Any]:
        """Return what ``of_state`` reads."""
        named = {f"{layer}.{side}": tensor for (layer, side), tensor in self.products.items()}
        norms = {f"{layer}.{side}": norm for (layer, side), norm in self.norms.items()}
        return {"squares": self.squares, "products": named, "norms": norms, "episodes": self.episodes}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Sums:
        """Return the sums that ``state`` wrote down."""
        return cls(
            state["squares"],
            {_side(name): tensor for name, tensor in state["products"].items()},
            {_side(name): norm for name, norm in state["norms"].items()},
            int(state["episodes"]),
        )

    def errors(self, maps: Mapping[Side, torch.Tensor]) -> dict[Side, float]:
        """Return by side the squared error of maps ``[I, W]`` on these positions, as a share of the squares."""
        return {side: self._error(side, maps[side].double()) for side in self.products}

    def _error(self, side: Side, matrix: torch.Tensor) -> float:
        both = 2 * (matrix * self.products[side]).sum() - (matrix * (self.squares @ matrix)).sum()
        return (self.norms[side] - float(both)) / self.norms[side]


def fitted(sums: Sums, settings: RestorationSettings) -> dict[str, torch.Tensor]:
    """Return the tensors of the best f_theta of a rank for what was summed, float32.

    The best map of a rank has the columns of the ridge solution projected on the directions in which what it predicts
    varies most (reduced-rank regression; Izenman, J. Multivariate Analysis 5, 1975), each layer weighed by its size.
    """
    if sums.squares is None:
        raise ValueError("no episodes were counted")
    size = sums.squares.shape[0]
    damped = sums.squares + RIDGE * sums.squares.diagonal().mean() * torch.eye(size, dtype=torch.double)
    tensors: dict[str, torch.Tensor] = {}
    encoders = []
    for name in ("keys", "values"):
        sides = [(layer, name) for layer in settings.layers]
        solved = torch.linalg.solve(damped, torch.cat([sums.products[side] for side in sides], dim=1))
        scales = torch.cat([torch.full((sums.products[side].shape[1],), sums.norms[side] ** 0.5) for side in sides])
        decoder = solved
        if not settings.whole:
            weighed = solved / scales
            _, directions = torch.linalg.eigh(weighed.T @ sums.squares @ weighed)
            kept = directions[:, -settings.rank :]
            encoder, decoder = weighed @ kept, kept.T * scales
            # Latents of about 1 each: training that goes on from here steps evenly in both.
            spread = (encoder * (sums.squares @ encoder)).sum(dim=0).clamp(
                min=1e-12
            ).sqrt() / sums.squares.trace().sqrt()
            encoders.append(encoder / spread)
            decoder = decoder * spread[:, None]
        widths = [sums.products[side].shape[1] for side in sides]
        for (layer, _), part in zip(sides, decoder.split(widths, dim=1), strict=True):
            tensors[f"layers.{layer}.{name}"] = part.float().contiguous()
    if encoders:
        tensors["encoder"] = torch.cat(encoders, dim=1).float().contiguous()
    return tensors


def whole_maps(tensors: Mapping[str, torch.Tensor], settings: RestorationSettings) -> dict[Side, torch.Tensor]:
    """Return by side the map ``[I, W]`` from the input that an f_theta is."""
    maps = {}
    for layer in settings.layers:
        for place, name in enumerate(("keys", "values")):
            decoder = tensors[f"layers.{layer}.{name}"].double()
            if not settings.whole:
                begin = place * settings.rank
                decoder = tensors["encoder"].double()[:, begin : begin + settings.rank] @ decoder
            maps[layer, name] = decoder
    return maps


def _side(name: str) -> Side:
    layer, side = name.split(".")
    return int(layer), side
