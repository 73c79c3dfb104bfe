"""Rows made again from a layer's input are bit for bit those that the layer's own module left in its cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.backends.layers import held_rows
from engine.errors import UsageError
from engine.structure.layout import CacheLayout
from tests.conformance.engine_families.test_against_stock import prompt_of
from tests.fakes import tiny_torch

KINDS = ("qwen3", "gemma4", "gemma4-shared")


@pytest.fixture(scope="module", params=["mlx", "torch"])
def targets(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from engine.loading import load_backend

    backend, root = load_backend(request.param), tmp_path_factory.mktemp("projected")
    return {kind: backend.load_target(tiny_torch.write_target(root / kind, kind)) for kind in KINDS}


def same(first: Any, other: Any) -> bool:
    return bool(np.array_equal(np.asarray(first.tolist()), np.asarray(other.tolist())))


@pytest.mark.parametrize("kind", KINDS)
def test_projected_and_finished_rows_are_the_cached_ones(targets: dict[str, Any], kind: str) -> None:
    target, ids = targets[kind], prompt_of(33, seed=4)
    layers = target.family.structure.attending
    sequence = target.open(tuple(range(target.info.layer_count)), CacheLayout.FULL)
    forwards = list(sequence.prefill(ids, 512))
    states, width = sequence.committed(forwards[0], len(ids)), target.info.hidden_size
    cached = held_rows(getattr(sequence.caches, "layers", sequence.caches))
    for layer in layers[1:]:
        given = states[:, (layer - 1) * width : layer * width]
        keys, values = target.family.finish(layer, *target.family.project(layer, given), range(len(ids)))
        expected = cached[layers.index(layer)]
        assert same(keys, expected[0])
        assert same(values, expected[1])


@pytest.mark.parametrize("kind", KINDS[:2])
def test_rows_of_pages_are_those_of_the_whole(targets: dict[str, Any], kind: str) -> None:
    family, positions = targets[kind].family, (0, 1, 2, 3, 16, 17, 18, 40)
    layer = family.structure.attending[-1]
    sequence = targets[kind].open((layer - 1,), CacheLayout.FULL)
    (forward,) = sequence.prefill(prompt_of(41, seed=6), 512)
    keys, values = family.project(layer, sequence.committed(forward, 41))
    whole = family.finish(layer, keys, values, range(41))
    chosen = [np.stack([np.asarray(side[row].tolist()) for row in positions]) for side in (keys, values)]
    rows = [_like(side, part) for side, part in zip((keys, values), chosen, strict=True)]
    made = family.finish(layer, *rows, positions)
    for side, part in zip(whole, made, strict=True):
        expected = np.asarray(side.tolist())[:, :, list(positions)]
        assert np.array_equal(np.asarray(part.tolist()), expected)


def _like(array: Any, values: np.ndarray) -> Any:
    """Return numbers as an array of the library of ``array``."""
    if hasattr(array, "numpy"):
        return array.new_tensor(values.tolist())
    import mlx.core as mx

    return mx.array(values.tolist(), array.dtype)


@pytest.mark.parametrize("kind", ["gpt_oss", "qwen3_next"])
def test_a_rotation_of_another_kind_is_refused_by_name(loaded: Callable[..., Any], kind: str) -> None:
    _, target = loaded("torch", kind)
    layer = target.family.structure.attending[-1]
    sequence = target.open((layer - 1,), CacheLayout.FULL)
    (forward,) = sequence.prefill(prompt_of(9, seed=6), 512)
    rows = target.family.project(layer, sequence.committed(forward, 9))
    with pytest.raises(UsageError, match=f"rows of model type '{kind}' cannot be made again"):
        target.family.finish(layer, *rows, range(9))
