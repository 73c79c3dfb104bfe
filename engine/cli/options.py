"""Options that several verbs share, and the one place where an engine error becomes an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.gates import CommitGate, EntropyGate
from engine.errors import EngineError, UsageError
from engine.loading import BACKENDS, Engine, load_backend, open_engine, own_drafter, resolve_model
from engine.protocols import Depth
from engine.types import CacheLayout

DEFAULT_TARGET = "kakeya-tiny-gemma4"
DEFAULT_DEPTH = 3
"""Drafted tokens per step: a block of 4 rows was the best measured one on CPU."""


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add backend, target and drafter."""
    parser.add_argument("--backend", choices=BACKENDS, default="mlx", help="array library (default: %(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="torch only: where to run (default: cuda if there)")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "auto"),
        help="torch only: dtype of the weights (default: float32 on a cpu, else the checkpoint's)",
    )
    parser.add_argument(
        "--target", help=f"model folder or name (default: KAKEYA_TARGET, else the packaged {DEFAULT_TARGET})"
    )
    parser.add_argument(
        "--drafter",
        help="folder or name of a DFlash drafter or of a small model, ngram, or none (default: KAKEYA_DRAFTER, else "
        "the one named like the target with -dflash behind)",
    )


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """Add cache layout and draft depth."""
    add_cache_option(parser)
    parser.add_argument(
        "--depth",
        default=str(DEFAULT_DEPTH),
        help="drafted tokens per step; auto for the never-slower controller; commit-gate or entropy-gate for a fixed "
        "depth behind a gate (default: %(default)s)",
    )
    parser.add_argument("--prefill-chunk", type=int, default=512, help="prompt rows per forward (default: %(default)s)")


def add_cache_option(parser: argparse.ArgumentParser) -> None:
    """Add the cache layout."""
    parser.add_argument(
        "--cache",
        default="native",
        metavar="LAYOUT",
        help="native: window and block on sliding layers; full: every row on all; lossy: affine8, affine4, affine8/32 "
        "(groups of 32 values), sink4+window64 (first 4 and newest 64 rows on full layers) (default: %(default)s)",
    )


def cache_layout(options: argparse.Namespace, *, lossless: bool = False) -> CacheLayout:
    """Return the layout asked for, before anything is loaded.

    Raises:
        UsageError: If the text names none, or one that changes what is decoded where ``lossless`` forbids that.
    """
    layout = CacheLayout.parse(options.cache)
    if lossless and not layout.lossless:
        raise UsageError(
            f"--cache {layout} changes what the target decodes, and this compares tokens with the exact target's; "
            "expected native or full. `kakeya-engine eval kv-quant` and `bounded-kv` measure lossy caches."
        )
    return layout


def counts(name: str, text: str) -> tuple[int, ...]:
    """Return comma-separated counts.

    Raises:
        UsageError: If one is no number.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise UsageError(f"{name} {text!r}; expected numbers separated by commas")
    return tuple(int(part) for part in parts)


def open_selected(options: argparse.Namespace) -> Engine:
    """Load what the options and the environment name."""
    target = resolve_model(options.target or os.environ.get("KAKEYA_TARGET") or DEFAULT_TARGET)
    drafter = chosen_drafter(options.drafter, target)
    return open_engine(load_backend(options.backend, options.device, options.dtype), str(target), drafter)


def chosen_drafter(asked: str | None, target: Path) -> str | None:
    """Return the drafter asked for, else the environment's, else the one that belongs to the target; None for none.

    Raises:
        UsageError: If nobody names one and none is known for the target.
    """
    named = asked or os.environ.get("KAKEYA_DRAFTER") or own_drafter(target)
    return None if named == "none" else named


def depth_factory(text: str, engine: Engine) -> tuple[Callable[[], Depth], dict[str, object]]:
    """Return a maker of fresh depth policies and their description for reports.

    Raises:
        UsageError: If ``text`` names no policy.
    """
    block = engine.drafter.info.block_size
    longest = block - 1 if block else 16
    if text == "auto":
        return lambda: ControlledDepth(longest), {"policy": "controller", "longest": longest}
    gated = min(DEFAULT_DEPTH, longest)
    if text == "commit-gate":
        return lambda: CommitGate(gated), {"policy": text, "tokens": gated}
    if text == "entropy-gate":
        return lambda: EntropyGate(gated), {"policy": text, "tokens": gated}
    if not text.isdigit():
        raise UsageError(f"--depth {text!r}; expected a number of tokens, auto, commit-gate or entropy-gate")
    depth = min(int(text), longest)
    return lambda: FixedDepth(depth), {"policy": "fixed", "tokens": depth}


def guarded(run: Callable[[], int]) -> int:
    """Run a verb; an engine error becomes one line on stderr and its exit code."""
    try:
        return run()
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
