"""The caches of all layers of a sequence: made as a layout says, cropped together, read whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.backends.caches import FullRows, LayerRows, SinkWindowRows, WindowRows
from engine.backends.evicting import EvictingRows, PageCounts
from engine.backends.pages import PagedRows
from engine.backends.recurrent import RecurrentState
from engine.backends.rows import Library, Rows, RowStore
from engine.backends.streaming import StreamedRows
from engine.errors import UsageError
from engine.restoration.rows import RestoredRows
from engine.structure.layout import CacheLayout


def crop_all(caches: Sequence[LayerRows | RecurrentState], length: int) -> None:
    """Crop the cache of every layer, or none of them.

    Raises:
        CacheCropError: If one of them cannot be cropped to ``length``.
    """
    for cache in caches:
        cache.check_crop(length)
    for cache in caches:
        cache.crop(length)


def by_layer(
    sizes: Sequence[tuple[int | None, int]],
    layout: CacheLayout,
    states: Mapping[int, RecurrentState],
    make: Callable[[int | None, CacheLayout, int], LayerRows],
) -> tuple[LayerRows | RecurrentState, ...]:
    """Return the caches of a sequence by layer: a layer keeps rows as the layout says of it unless ``states`` has it.

    Args:
        sizes: Window and size of a head of every layer that keeps rows, in order.
        layout: What is kept.
        states: The states of the other layers, by layer.
        make: Makes the cache of one layer of a window, a layout and a size of a head.
    """
    rest = iter(sizes)
    caches: list[LayerRows | RecurrentState] = []
    for layer in range(len(sizes) + len(states)):
        if layer in states:
            caches.append(states[layer])
            continue
        window, head_dim = next(rest)
        caches.append(make(window, layout.of(layer), head_dim))
    return tuple(caches)


def page_counts(caches: Sequence[LayerRows | RecurrentState]) -> PageCounts:
    """Return what became of the pages of all layers so far."""
    return sum((cache.counts() for cache in caches if isinstance(cache, EvictingRows)), PageCounts())


def close_all(caches: Sequence[LayerRows | RecurrentState]) -> None:
    """Let go of evicted pages."""
    for cache in caches:
        if isinstance(cache, EvictingRows):
            cache.close()


def held_rows(caches: Sequence[LayerRows | RecurrentState]) -> list[Rows]:
    """Return every row of every layer that keeps rows.

    Raises:
        UsageError: If a cache does not keep every row.
    """
    kept = [cache for cache in caches if isinstance(cache, FullRows)]
    if len(kept) < sum(isinstance(cache, LayerRows) for cache in caches):
        raise UsageError("rows are compared on a sequence that keeps every row; open it with the full layout")
    return [cache.held() for cache in kept]


def layer_rows(
    window: int | None,
    layout: CacheLayout,
    head_dim: int,
    library: Library,
    sizes: tuple[Callable[[int], int], Callable[[int], int], int],
) -> LayerRows:
    """Return the cache of one layer.

    Args:
        window: None on a full-attention layer.
        layout: What is kept, in how many bits.
        head_dim: Values of a head.
        library: Whose arrays.
        sizes: Slack rows of a sliding layer's window, of a bounded layer's, and how many rows a cache grows by.
    """
    sliding_slack, slack, grow_rows = sizes
    store = RowStore(library, library.codec(layout, head_dim))
    if window is None and layout.window is not None and layout.evicts:
        kind = StreamedRows if layout.stream else PagedRows
        return kind(store, layout, (slack(layout.window), grow_rows))
    if window is None and layout.window is not None:
        bounded = SinkWindowRows if layout.rank is None else RestoredRows
        return bounded(store, layout.sink, layout.window, slack(layout.window), grow_rows)
    if window is not None and not layout.every_row:
        return WindowRows(store, window, sliding_slack(window), grow_rows)
    return FullRows(store, window, grow_rows)
