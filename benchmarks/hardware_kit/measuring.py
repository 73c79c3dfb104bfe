"""Measure one thing of this machine and print a JSON line for each row, as soon as it is there.

A process of its own for each step of the kit: what breaks, hangs or fills the memory takes nothing else along.
Identity counts greedy tokens of the shipped pairs that differ from plain decoding. Bandwidth is a copy and a matrix
product. Verify cost is what forwards of several rows take behind contexts of random rows. Attention compares the ways
in which a block may attend.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from engine.checkpoint import ASSETS
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.loading import load_backend, open_engine
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.studies.verify_cost import CostPlan, measure_costs
from engine.types import Draft, TargetInfo

Row = dict[str, Any]
PAIRS = ("kakeya-tiny-gemma4", "kakeya-tiny-qwen3")
TOKENS, DEPTHS = 40, (0, 3, 7)
ROWS = (1, 2, 4, 8, 16)
CONTEXTS = (512, 4096, 32768)
REPEATS = 7
SIZES = {
    "dense-4b": (36, 2560, 9728, 32, 8, 128, 151_936),
    "dense-600m": (28, 1024, 3072, 16, 8, 128, 151_936),
    "dense-40m": (8, 512, 1536, 8, 2, 64, 16_384),
}
"""Layers, hidden size, size between, query heads, key heads, head size and vocabulary, the largest first."""
LARGEST_SHARE = 0.75
"""Of free memory: what weights may take."""


def identity(backend_name: str, device: str | None) -> Iterator[Row]:
    """Yield by pair and depth how many greedy tokens differ from plain decoding."""

    backend: Any = load_backend(backend_name, device, "float32")
    prompt = tuple(range(5, 60))
    for pair in PAIRS:
        target = backend.load_target(Path(ASSETS) / pair)
        model = backend.load_dflash(Path(ASSETS) / f"{pair}-dflash", target)
        accept = backend.greedy(target)
        plain = autoregressive(target.open((), CacheLayout.FULL), accept, prompt, Stopping(TOKENS))
        expected = [token for step in plain for token in step.tokens]
        for depth in DEPTHS:
            sequence = target.open(model.capture, CacheLayout.NATIVE)
            parts = Parts(sequence, model.open(), accept, FixedDepth(depth), backend.clock)
            tokens = [token for step in speculative(parts, prompt, Stopping(TOKENS)) for token in step.tokens]
            differ = sum(mine != theirs for mine, theirs in zip(tokens, expected, strict=True))
            yield {"pair": pair, "depth": depth, "tokens": len(expected), "differ": differ}


def bandwidth(backend_name: str, device: str | None) -> Iterator[Row]:
    """Yield the rates of a copy and of a product, by size."""

    backend: Any = load_backend(backend_name, device, "float32")
    for megabytes in (16, 256, 1024):
        run = _copy(backend_name, device, megabytes << 18)
        seconds = _times(backend, run)
        yield {"what": "copy", "megabytes": megabytes, "seconds": seconds, "bytes_moved": 2 * (megabytes << 20)}
    for size in (512, 2048):
        seconds = _times(backend, _product(backend_name, device, size))
        yield {"what": "product", "size": size, "dtype": "float32", "seconds": seconds, "operations": 2 * size**3}


def verify_cost(backend_name: str, device: str | None) -> Iterator[Row]:
    """Yield the seconds of forwards by rows and context of a shipped target, and on torch of random ones."""

    backend: Any = load_backend(backend_name, device)
    engine = open_engine(backend, "kakeya-tiny-qwen3", None)
    costs = measure_costs(engine, CostPlan((512,), ROWS, REPEATS, "kit"))
    for row in costs.verify:
        yield {"target": "kakeya-tiny-qwen3", "context": 512, "rows": row.rows, "seconds": list(row.seconds)}
    if backend_name != "torch":
        yield {"left_out": "random targets", "why": "they are built with torch"}
        return
    yield from _random_costs(backend)
    yield {"left_out": "hybrid", "why": "its recurrent states are not filled with random rows yet"}


def attention(backend_name: str, device: str | None) -> Iterator[Row]:
    """Yield what the three ways of a block to attend take, 32 query heads over 8 of 128 values."""
    if backend_name != "torch":
        yield {"left_out": "ways to attend", "why": "MLX has one"}
        return
    import torch  # noqa: PLC0415 - not everywhere
    from torch.nn.functional import scaled_dot_product_attention as attend  # noqa: PLC0415 - not everywhere

    backend: Any = load_backend(backend_name, device)
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    dtype = torch.float32 if where.type == "cpu" else torch.bfloat16
    for context, rows in product(CONTEXTS, (1, 4, 8, 16)):
        queries = torch.randn((1, 32, rows, 128), device=where, dtype=dtype)
        keys, values = (torch.randn((1, 8, context, 128), device=where, dtype=dtype) for _ in range(2))
        places = torch.arange(context, device=where)
        mask = (places[None] <= places[context - rows :, None])[None, None]

        def repeat(q: Any = queries, k: Any = keys, v: Any = values, m: Any = mask) -> Any:
            return attend(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), attn_mask=m)

        def shared(q: Any = queries, k: Any = keys, v: Any = values, m: Any = mask) -> Any:
            return attend(q, k, v, attn_mask=m, enable_gqa=True)

        def packed(q: Any = queries, k: Any = keys, v: Any = values, m: Any = mask) -> Any:
            return attend(q.reshape(1, 8, -1, 128), k, v, attn_mask=m.repeat(1, 1, 4, 1))

        for name, run in (("repeat", repeat), ("enable_gqa", shared), ("packed", packed)):
            yield {"way": name, "context": context, "rows": rows, "seconds": _times(backend, run)}


STEPS: dict[str, Callable[[str, str | None], Iterator[Row]]] = {
    "identity": identity,
    "bandwidth": bandwidth,
    "verify-cost": verify_cost,
    "attention": attention,
}
"""In the order in which they are worth most."""


def _random_costs(backend: Any) -> Iterator[Row]:
    """Yield rows of the largest random dense target that fits; its context is filled with random rows."""
    import torch  # noqa: PLC0415 - not everywhere

    where = torch.device("cuda" if backend.device.startswith("cuda") else "cpu")
    dtype = torch.float32 if where.type == "cpu" else torch.bfloat16
    room = room_bytes(backend) * LARGEST_SHARE
    for name, size in SIZES.items():
        needed = _parameters(size) * dtype.itemsize
        if needed > room or (where.type == "cpu" and needed > 1 << 30):
            yield {"left_out": name, "why": f"{needed >> 20} MiB of weights, for a plain step of a second"}
            continue
        target, heads, head_dim = _random_dense(size, where, dtype), size[4], size[5]
        accept = backend.greedy(target)
        for context in CONTEXTS:
            sequence = _filled(target, context, (heads, head_dim), dtype)
            for rows in ROWS:
                draft = Draft(tokens=(7,) * (rows - 1), count=rows - 1)

                def verify(block: Any = draft, on: Any = sequence, start: int = context, rule: Any = accept) -> None:
                    rule.decide(block, on.forward_block(7, block))
                    on.crop(start)

                yield {"target": name, "context": context, "rows": rows, "seconds": _times(backend, verify)}
        return


def _filled(target: Any, context: int, sizes: tuple[int, int], dtype: Any) -> Any:
    """Return a sequence whose caches hold so many random rows."""
    import torch  # noqa: PLC0415 - not everywhere

    sequence = target.open((), CacheLayout.NATIVE)
    for layer in sequence.caches.layers:
        rows = torch.randn((1, sizes[0], context, sizes[1]), device=target.device, dtype=dtype)
        layer.append(rows, rows)
    return sequence


def _random_dense(size: Sequence[int], where: Any, dtype: Any) -> Any:
    """Return a target of Qwen3's layers with random weights, made on its device."""
    import torch  # noqa: PLC0415 - not everywhere
    from transformers import AutoModelForCausalLM, Qwen3Config  # noqa: PLC0415 - not everywhere

    from engine.backends.torch.target import TorchTarget  # noqa: PLC0415 - not everywhere

    layers, hidden, between, heads, key_heads, head_dim, vocabulary = size
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=between,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=head_dim,
        max_position_embeddings=max(CONTEXTS) + 64,
        tie_word_embeddings=True,
    )
    with torch.device(where):
        module: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    module.eval().requires_grad_(False)
    info = TargetInfo("random", "", "random", 0, vocabulary, hidden, layers, max(CONTEXTS) + 64, None, str(dtype)[6:])
    return TorchTarget(module, info)


def _parameters(size: Sequence[int]) -> int:
    layers, hidden, between, heads, key_heads, head_dim, vocabulary = size
    attention_weights = hidden * head_dim * (2 * heads + 2 * key_heads)
    return layers * (attention_weights + 3 * hidden * between) + vocabulary * hidden


def room_bytes(backend: Any, names: Container[str] = frozenset(os.sysconf_names)) -> int:
    """Return the bytes that weights may be in; ``names`` are the names by which the system tells its memory."""
    memory = backend.memory()
    if memory is not None:
        return int(memory.usable_bytes)

    # macOS does not say how much is free.
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in names else "SC_PHYS_PAGES"
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)


def _copy(backend_name: str, device: str | None, numbers: int) -> Callable[[], Any]:
    if backend_name == "mlx":
        import mlx.core as mx  # noqa: PLC0415 - not everywhere

        source = mx.ones((numbers,), mx.float32)
        return lambda: mx.eval(source + 0)
    import torch  # noqa: PLC0415 - not everywhere

    source = torch.ones(numbers, device=device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return source.clone


def _product(backend_name: str, device: str | None, size: int) -> Callable[[], Any]:
    if backend_name == "mlx":
        import mlx.core as mx  # noqa: PLC0415 - not everywhere

        square = mx.ones((size, size), mx.float32)
        return lambda: mx.eval(square @ square)
    import torch  # noqa: PLC0415 - not everywhere

    factor = torch.ones((size, size), device=device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return lambda: factor @ factor


def _times(backend: Any, run: Callable[[], Any]) -> list[float]:
    """Return the seconds of each run after one that warms up; fewer of what takes long."""
    seconds: list[float] = []
    began = time.perf_counter()
    for turn in range(REPEATS + 1):
        start_ns = backend.clock.now_ns()
        run()
        ended_ns = backend.clock.now_ns()
        if turn:
            seconds.append((ended_ns - start_ns) / 1e9)
        if turn > 1 and time.perf_counter() - began > 3 * REPEATS * max(0.05, median(seconds)) / 2:
            break
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a step and print its rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hardware_kit.measuring", description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--backend", required=True, choices=("torch", "mlx"))
    parser.add_argument("--device")
    options = parser.parse_args(arguments)
    for row in STEPS[options.step](options.backend, options.device):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
