"""The array libraries as tests of their caches need them: the same few verbs over either one's arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

HEADS = 2


@dataclass(frozen=True)
class RowLibrary:
    """One library's caches and codec; arrays are ``[1, HEADS, rows, dim]`` in fp32.

    Attributes:
        caches: module of ``window_cache`` and ``make_cache``.
        rows: module of ``Affine``, ``LIBRARY`` and ``squared``.
        array: makes one from nested lists.
        append: writes keys and values to a cache and returns what its attention is shown.
        mask: what the next rows of a cache may see.
        visible: for each new row the first value of every key that ``mask`` lets it see.
    """

    caches: Any
    rows: Any
    array: Callable[[Any], Any]
    append: Callable[[Any, Any, Any], tuple[Any, Any]]
    mask: Callable[[Any, int], Any]
    visible: Callable[[Any, int, Any], list[list[float]]]

    def rows_of(self, start: int, count: int, dim: int, salt: float = 0.0) -> Any:
        """Return rows whose values name their position and the append that wrote them."""
        return self.array([[[[start + row + salt] * dim for row in range(count)] for _ in range(HEADS)]])


def library(name: str) -> RowLibrary:
    """Return a library, or skip the test where it is not installed."""
    return _mlx() if name == "mlx" else _torch()


def _mlx() -> RowLibrary:
    mx = pytest.importorskip("mlx.core", reason="the MLX backend is not installed")
    from engine.backends.mlx import caches, rows

    def visible(mask: Any, count: int, shown: Any) -> list[list[float]]:
        total = shown.shape[2]
        if mask is None:
            allowed = [[True] * total for _ in range(count)]
        elif isinstance(mask, str):
            allowed = [[index <= total - count + row for index in range(total)] for row in range(count)]
        else:
            allowed = mask.tolist()
        return _seen(shown[0, 0, :, 0].tolist(), allowed)

    return RowLibrary(
        caches,
        rows,
        lambda values: mx.array(values, dtype=mx.float32),
        lambda cache, keys, values: cache.update_and_fetch(keys, values),
        lambda cache, count: caches.attention_mask(cache.visible(count)),
        visible,
    )


def _torch() -> RowLibrary:
    torch = pytest.importorskip("torch", reason="the torch backend is not installed")
    from engine.backends.torch import caches, rows

    def visible(mask: Any, count: int, shown: Any) -> list[list[float]]:
        total = shown.shape[2]
        if mask is not None:
            allowed = mask[0, 0].tolist()
        elif count == 1:
            allowed = [[True] * total]
        else:
            # Without a mask torch takes a square one, causal from the start.
            assert count == total
            allowed = [[column <= row for column in range(total)] for row in range(count)]
        return _seen(shown[0, 0, :, 0].tolist(), allowed)

    return RowLibrary(
        caches,
        rows,
        lambda values: torch.tensor(values, dtype=torch.float32),
        lambda cache, keys, values: cache.append(keys, values),
        lambda cache, count: caches.attention_mask(cache.visible(count), torch.device("cpu")),
        visible,
    )


def _seen(keys: list[float], allowed: list[list[bool]]) -> list[list[float]]:
    return [[key for key, fine in zip(keys, row, strict=True) if fine] for row in allowed]
