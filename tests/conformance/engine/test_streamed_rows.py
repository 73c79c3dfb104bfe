"""Reading every evicted row for every block emits the tokens of the native cache, from memory that does not grow."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import pytest

from engine.backends.evicting import PAGE_ROWS
from engine.backends.streaming import StreamedRows
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.ngram import NgramModel
from engine.errors import UsageError
from engine.loading import load_backend, resolve_model
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout

torch = pytest.importorskip("torch", reason="the checkpoints are written with torch")
pytest.importorskip("mlx.core", reason="conformance needs both backends")

from tests.fakes import tiny_torch  # noqa: E402

STREAMED = CacheLayout.parse("sink4+window16+stream")
BUDGET = 12
KINDS = ("gemma4", "qwen3")


@pytest.fixture(scope="module", params=["mlx", "torch"])
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, dict[str, Any], Path]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("streamed")
    tiny_torch.write_dflash(root / "dflash")
    backend = load_backend(request.param, device="cpu" if request.param == "torch" else None)
    kinds = (*KINDS, "gemma4-shared")
    return backend, {kind: backend.load_target(tiny_torch.write_target(root / kind, kind)) for kind in kinds}, root


def prompt_of(length: int) -> tuple[int, ...]:
    chooser = random.Random(length)
    return tuple(chooser.randrange(5, tiny_torch.VOCAB) for _ in range(length))


def streams(sequence: Any) -> list[StreamedRows]:
    return [cache for cache in getattr(sequence.caches, "layers", sequence.caches) if isinstance(cache, StreamedRows)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 60, 300])
def test_tokens_are_those_of_the_native_cache(loaded: Any, kind: str, length: int) -> None:
    backend, targets, root = loaded
    target, prompt = targets[kind], prompt_of(length)
    accept = backend.greedy(target)
    plain = autoregressive(target.open((), CacheLayout.NATIVE), accept, prompt, Stopping(BUDGET), 512)
    expected = [token for step in plain for token in step.tokens]
    for drafter, depth, chunk in (
        (NgramModel(min_tokens=1), 0, 512),
        (NgramModel(min_tokens=1), 5, 33),
        (backend.load_dflash(root / "dflash", target), 7, 100),
    ):
        sequence = target.open(drafter.capture, STREAMED)
        parts = Parts(sequence, drafter.open(), accept, FixedDepth(depth), backend.clock)
        steps = list(speculative(parts, prompt, Stopping(BUDGET), chunk))
        assert [token for step in steps for token in step.tokens] == expected, (drafter.info.name, depth)
        assert streams(sequence)
        assert all((stream.bytes_read > 0) == (length > 2 * PAGE_ROWS) for stream in streams(sequence))


@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_grow_with_the_context(loaded: Any, kind: str) -> None:
    _, targets, _ = loaded
    sizes = []
    for length in (120, 480):
        sequence = targets[kind].open((), STREAMED)
        for _ in sequence.prefill(prompt_of(length), 32):
            pass
        list(sequence.decode_ahead(7, 2))
        sizes.append(sum(stream.measured_bytes() for stream in streams(sequence)))
    assert sizes[1] <= 1.02 * sizes[0]


def test_on_mlx_pages_that_moved_are_not_held_beside_the_pool() -> None:
    import mlx.core as mx

    target: Any = load_backend("mlx").load_target(resolve_model("kakeya-tiny-gemma4"))
    prompt = tuple(random.Random(1).randrange(5, 2000) for _ in range(500))
    for _ in range(2):  # the first leaves graphs with the target
        sequence = target.open((), CacheLayout.parse("sink4+window64+pages16x24+stream"))
        for _ in sequence.prefill(prompt, 512):
            pass
        list(sequence.decode_ahead(7, 5))
        gc.collect()  # what other tests left is nobody's here; a forward's own rows are a tenth of fewer pages
        counted, active_bytes = sequence.measured_bytes(), mx.get_active_memory()
        sequence.close()
        del sequence
        gc.collect()
    assert active_bytes - mx.get_active_memory() <= 1.1 * counted


def test_a_family_whose_attention_is_another_is_refused_by_name(loaded: Any) -> None:
    _, targets, _ = loaded
    with pytest.raises(UsageError, match="'gemma4_text' cannot be decoded yet: it has layers that share the rows"):
        targets["gemma4-shared"].open((), STREAMED)
