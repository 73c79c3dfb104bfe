"""Forwards of few rows whose graph MLX replays instead of having Python build it anew.

Building the graph of a forward takes Python longer than a small model's weights take to be read. ``mx.compile`` keeps
the graph of every shape, so the arrays of a step have shapes that seldom change: whole buffers of keys and values go in
and come out, positions are arrays, and masks hide the rows of a buffer that are not written yet. A recurrent layer's
state goes in, and comes out with what the recurrence read.

Shapes: S rows, C rows of a buffer, D hidden size, K captured layers, V vocabulary.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mlx.core as mx

from engine.backends.caches import FullRows, WindowRows
from engine.backends.mlx.fusing import Unfused
from engine.backends.mlx.models.decoder import Caches, Decoder
from engine.backends.recurrent import Arrays, RecurrentState

LONGEST_ROWS = 32
"""Blocks of more rows are rare, and their graph is a small part of them."""

MOST_SHAPES = 64
"""Graphs that are kept: each is memory that no allocator counts."""


class Stepped(NamedTuple):
    """What a forward puts out: logits ``[S, V]``, captured states ``[S, K * D]`` or None, whether rows are finite."""

    logits: mx.array
    features: mx.array | None
    sound: mx.array


class CompiledSteps:
    """The compiled forwards of one decoder, by what they capture and by their shapes: those that were used last."""

    def __init__(self, family: Decoder) -> None:
        self._family = family
        self._groups = tuple(dict.fromkeys(family.windows))
        self._functions: OrderedDict[tuple[int, ...], Callable[..., Any] | None] = OrderedDict()
        self._changing = threading.Lock()
        self._runs: dict[tuple[int, ...], Callable[..., Any]] = {}
        self._unfused = Unfused()

    def forward(self, ids_S: mx.array, caches: Sequence[Any], capture: tuple[int, ...]) -> Stepped | None:
        """Append ``S`` rows to caches that can lend their buffers; None for a shape that is not worth compiling yet.

        A shape is compiled when it comes for the second time: many come once.
        """
        rows = ids_S.shape[0]
        if rows > LONGEST_ROWS or caches[0].length == 0:
            return None
        bases, buffers = zip(*(cache.lend(rows) for cache in caches), strict=True)
        shape = (*capture, -rows, *(pair[0].shape[2] for pair in buffers))
        function = self._function(shape, capture)
        if function is None:
            return None
        attending, windows = self._family.structure.attending, self._family.windows
        first = [bases[attending[windows.index(window)]] for window in self._groups]
        places = mx.array([caches[0].length, *first], mx.int32)
        with self._unfused:
            logits, features, sound, written = function(ids_S, places, buffers)
        # The old buffers are let go before anything is evaluated: MLX then writes into them instead of into copies.
        del buffers
        for cache, pair in zip(caches, written, strict=True):
            cache.take_back(pair, rows)
        return Stepped(logits, features[0] if features else None, sound)

    def _function(self, shape: tuple[int, ...], capture: tuple[int, ...]) -> Callable[..., Any] | None:
        """Return the compiled forward of a shape that was met before; one each, so that it can be let go alone."""
        with self._changing:
            if shape not in self._functions:
                if len(self._functions) >= MOST_SHAPES:
                    self._functions.popitem(last=False)
                self._functions[shape] = None
                return None
            self._functions.move_to_end(shape)
            if self._functions[shape] is None:
                # MLX may know a graph by the address of what it was traced from, which must not be another's later.
                run = self._runs.setdefault(shape, _Step(self._family, self._groups, capture).run)
                self._functions[shape] = mx.compile(run)
            return self._functions[shape]


def lending(caches: Caches) -> bool:
    """Return whether every cache keeps a state, or rows as attention sees them, in one buffer a side."""
    return all(
        isinstance(cache, RecurrentState) or (type(cache) in {FullRows, WindowRows} and cache.plain) for cache in caches
    )


def sound_rows(hidden_SD: mx.array) -> mx.array:
    """Return whether each row is finite, ``[S]``; what a row left in a cache is finite where its output is."""
    return mx.isfinite(mx.sum(hidden_SD, axis=-1))


class _TracedRows:
    """What a layer sees of its cache while a step is traced: whole buffers, the new rows written into them."""

    def __init__(self, buffers: Sequence[mx.array], length: mx.array, row: mx.array) -> None:
        self.buffers = tuple(buffers)
        self.offset = length
        self._row = row

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, ...]:
        """Write the new rows; return both buffers whole."""
        pairs = zip(self.buffers, (keys, values), strict=True)
        self.buffers = tuple(mx.slice_update(buffer, rows, self._row, (2,)) for buffer, rows in pairs)
        return self.buffers


class _TracedState:
    """What a recurrent layer sees of its state while a step is traced; behind it is put what the recurrence read."""

    def __init__(self, state: Arrays) -> None:
        self.state = self.buffers = state

    def append(self, state: Arrays, read: Arrays, rows: int) -> None:
        """Take the next state, and what a crop into these rows needs."""
        del rows
        self.buffers = (*state, *read)


@dataclass(frozen=True)
class _Step:
    """What a trace is made of beside the arrays: layers by group, a group for each window, and what is captured."""

    family: Decoder
    groups: tuple[int | None, ...]
    capture: tuple[int, ...]

    def run(
        self, ids_S: mx.array, places: mx.array, buffers: Sequence[Sequence[mx.array]]
    ) -> tuple[mx.array, list[mx.array], mx.array, list[tuple[mx.array, ...]]]:
        """Run a forward; ``places`` are the length so far and, by group, the position of a buffer's first row."""
        family, length, rows = self.family, places[0], ids_S.shape[0]
        held, masks, made = list[_TracedRows | _TracedState](), dict[int, mx.array](), dict[tuple[int, int], mx.array]()
        windows = dict(zip(family.structure.attending, family.windows, strict=True))
        for index, arrays in enumerate(buffers):
            if index not in windows:
                held.append(_TracedState(tuple(arrays)))
                continue
            group, capacity = self.groups.index(windows[index]), arrays[0].shape[2]
            base = places[group + 1 : group + 2]
            if (group, capacity) not in made:
                made[group, capacity] = _mask(rows, capacity, windows[index], length, base)
            held.append(_TracedRows(arrays, length, places[:1] - base))
            masks[index] = made[group, capacity]
        run = family.layers(ids_S, tuple(held), self.capture, lambda index, _: masks[family.source(index)])
        hidden, features = run
        found = [] if features is None else [features]
        return family.head(hidden[0]), found, sound_rows(hidden[0]), [layer.buffers for layer in held]


def _mask(rows: int, capacity: int, window: int | None, length: mx.array, base: mx.array) -> mx.array:
    """Return which of a buffer's rows each new row sees, ``[S, C]``."""
    keys, queries = mx.arange(capacity) + base, (mx.arange(rows) + length)[:, None]
    seen = keys <= queries
    return seen if window is None else seen & (queries - keys < window)
