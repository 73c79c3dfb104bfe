"""Key and value caches of one layer on torch, and the masks over the rows they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.backends.caches import FullRows, LayerRows, SinkWindowRows, WindowRows
from engine.backends.evicting import EvictingRows
from engine.backends.layers import by_layer, crop_all, layer_rows
from engine.backends.recurrent import HeldState, RecurrentState
from engine.backends.rows import Rows, RowStore
from engine.backends.torch.rows import LIBRARY
from engine.backends.visibility import Visibility
from engine.errors import UsageError
from engine.structure.layout import CacheLayout

GROW_ROWS = 64
"""How many rows a cache grows by."""


def slack_of(window: int) -> int:
    """Return how many spare rows a window gets."""
    return max(16, window // 16)


def window_cache(window: int) -> WindowRows:
    """Return a cache that keeps a window, a block and a little slack."""
    return WindowRows(RowStore(LIBRARY), window, slack_of(window), GROW_ROWS)


@dataclass(frozen=True, slots=True)
class HeldRows:
    """A layer's rows of positions ``first`` on, oldest first: ``[1, heads, rows, head_dim]``.

    ``window`` is None on a full-attention layer; ``every_row`` says that rows behind the window are kept too.
    """

    window: int | None
    every_row: bool
    first: int
    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class Held:
    """What the layers of a sequence hold, by layer: the rows of those that attend, the states of the others."""

    rows: dict[int, HeldRows]
    states: dict[int, HeldState]


class LayerCaches:
    """The caches of a sequence in the shape transformers' attention modules call: ``update(keys, values, layer)``.

    ``windows`` and ``head_dims`` are those of the layers that keep rows, ``states`` those of the others by layer.
    """

    def __init__(
        self,
        windows: Sequence[int | None],
        head_dims: Sequence[int],
        layout: CacheLayout,
        states: Mapping[int, RecurrentState] | None = None,
    ) -> None:
        self.states = dict(states or {})
        self.layers = by_layer(list(zip(windows, head_dims, strict=True)), layout, self.states, make_cache)
        self._first = next(index for index in range(len(self.layers)) if index not in self.states)
        self.asked = {index: layer for index, layer in enumerate(self.layers) if isinstance(layer, EvictingRows)}
        """The layers that are asked with their queries before each append."""

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self.layers[self._first].length

    def masks(self, rows: int, device: torch.device) -> dict[int, torch.Tensor | None]:
        """Return by layer the mask over what its next ``update`` with ``rows`` rows will return, asked ones apart."""
        own = {index: layer for index, layer in enumerate(self.layers) if index not in self.asked}
        seen = {index: layer.visible(rows) for index, layer in own.items() if isinstance(layer, LayerRows)}
        made = {visible: attention_mask(visible, device) for visible in set(seen.values())}
        return {index: made[visible] for index, visible in seen.items()}

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: object, **__: object) -> Rows:
        """Append one layer's rows and return the rows its queries may attend to."""
        return self._rows(layer_idx).append(keys, values)

    def held(self) -> Held:
        """Return every layer's rows or state, as a crop may still need them.

        Raises:
            UsageError: If a layer keeps a sink, or nothing is cached.
        """
        found = {}
        for index, layer in self._attending():
            first, (keys, values) = layer.kept()
            found[index] = HeldRows(layer.window, isinstance(layer, FullRows), first, keys, values)
        return Held(found, {index: state.held() for index, state in self.states.items()})

    def resume(self, held: Held, floor: int) -> None:
        """Begin, while empty, with what other caches held."""
        for index, layer in self._attending():
            rows = held.rows[index]
            layer.resume(rows.first, (rows.keys, rows.values), floor)
        for index, state in self.states.items():
            state.resume(held.states[index], self.length)

    def crop(self, length: int) -> None:
        """Crop the cache of every layer to ``length`` positions, or none of them."""
        crop_all(self.layers, length)

    def rewind(self, length: int) -> None:
        """Take the cache of every layer back to an earlier length."""
        for layer in self.layers:
            layer.rewind(length)

    def measured_bytes(self) -> int:
        """Return the bytes of all buffers."""
        return sum(layer.measured_bytes() for layer in self.layers)

    def _attending(self) -> list[tuple[int, FullRows | WindowRows]]:
        return [(index, _movable(layer)) for index, layer in enumerate(self.layers) if index not in self.states]

    def _rows(self, layer_idx: int) -> LayerRows:
        layer: LayerRows = self.layers[layer_idx]  # type: ignore[assignment]
        return layer


def _movable(layer: LayerRows | RecurrentState) -> FullRows | WindowRows:
    if isinstance(layer, SinkWindowRows) or not isinstance(layer, FullRows | WindowRows):
        raise UsageError("rows beside a sink stay where they are; open the sequence with the native or full layout")
    return layer


def make_cache(window: int | None, layout: CacheLayout, head_dim: int) -> LayerRows:
    """Return the cache of one layer; ``window`` is None on a full-attention layer."""
    return layer_rows(window, layout, head_dim, LIBRARY, (slack_of, slack_of, GROW_ROWS))


def attention_mask(visible: Visibility, device: torch.device) -> torch.Tensor | None:
    """Return the mask of the new rows over the rows that their append returns.

    Returns:
        bool ``[1, 1, rows, keys]``, True where a query may attend, or None where torch needs none: one query sees every
        key it is given, and a first chunk within the window is plainly causal (torch aligns that at the start, so a
        chunk after other rows always carries its mask).
    """
    if visible.alone is not None:
        heads, group = visible.alone
        wanted = torch.arange(visible.rows, device=device)[:, None] * group
        mine = torch.arange(heads, device=device)[:, None, None] % group
        return (wanted + mine == torch.arange(visible.rows * group, device=device))[None]
    start, causal = visible.start, visible.causal
    if visible.rows == 1 or (start == 0 and causal):
        return None
    keys = torch.cat([torch.arange(*run, device=device) for run in visible.runs])
    queries = torch.arange(start, start + visible.rows, device=device)[:, None]
    mask = keys <= queries
    if not causal and visible.window is not None:
        near = queries - keys < visible.window
        if visible.again is not None:
            again = [torch.full((run[1] - run[0],), run == visible.again, device=device) for run in visible.runs]
            near ^= torch.cat(again)
        mask &= near | (keys < visible.sink)
    return mask[None, None]
