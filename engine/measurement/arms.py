"""The ways of decoding that a workload compares: the library's own loop, and the engine's speculative loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.none import NoDrafter
from engine.drafters.several import SeveralDrafters
from engine.loading import Engine
from engine.protocols import Depth, Drafter, NativeDecoder, Sequence
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Step

AUTOREGRESSIVE = "autoregressive"
AUTOREGRESSIVE_AGAIN = "autoregressive_again"
SPECULATIVE = "speculative"
BASE, BASE_AGAIN, HEAD = "base", "base_again", "head"
PEER = "peer"
ROLES = {
    PEER: "candidate",
    AUTOREGRESSIVE: "baseline",
    AUTOREGRESSIVE_AGAIN: "control",
    SPECULATIVE: "candidate",
    BASE: "baseline",
    BASE_AGAIN: "control",
    HEAD: "candidate",
}
"""Every arm of a comparison and its role."""


@dataclass(frozen=True, slots=True)
class Running:
    """One generation in progress: its steps, how to read the bytes it holds, and which forwards fell back why.

    ``kv_bytes`` are those of rows, of them ``host_bytes`` in memory that no library's allocator counts, and
    ``latent_bytes`` those of what evicted rows are made of again.
    """

    steps: Iterator[Step]
    kv_bytes: Callable[[], int]
    drafter_bytes: Callable[[], int | None]
    fallbacks: Callable[[], Mapping[str, int]] = dict
    latent_bytes: Callable[[], int] = int
    host_bytes: Callable[[], int] = int


NATIVE_CHUNK_TOKENS = 2048
"""Prompt rows a forward of the library's own loop: mlx_lm's default; transformers would take a prompt whole."""


@dataclass(frozen=True, slots=True)
class ArmSettings:
    """How the arms of one workload decode. ``depth`` makes a fresh, cold policy for each sample."""

    layout: CacheLayout
    depth: Callable[[], Depth]
    chunk_tokens: int


def code_path(engine: Engine, arm: str) -> str:
    """Return ``module:function`` of the code that decodes an arm."""
    return "engine.decoding.speculative:speculative" if arm == SPECULATIVE else engine.native.code_path


def fell_back(sequence: Sequence, drafter: Drafter) -> dict[str, int]:
    """Return by reason how many forwards of a target and of a small draft model did not run as asked."""
    counts = dict(sequence.fallbacks())
    for each in drafter.named.values() if isinstance(drafter, SeveralDrafters) else (drafter,):
        counts |= each.fallbacks() if isinstance(each, DraftModelDrafter) else {}
    return counts


def native(decoder: NativeDecoder, prompt: tuple[int, ...], stopping: Stopping, chunk_tokens: int) -> Running:
    """Begin decoding with the library's own loop."""
    return Running(decoder.decode(prompt, stopping, chunk_tokens), decoder.measured_bytes, lambda: None)


def undrafted(
    engine: Engine, layout: CacheLayout, prompt: tuple[int, ...], stopping: Stopping, chunk_tokens: int
) -> Running:
    """Begin decoding with the engine's own loop on a cache layout, without a drafter."""
    sequence: Any = engine.target.open((), layout)
    parts = Parts(sequence, NoDrafter(), engine.accept, FixedDepth(0), engine.backend.clock, engine.resident)
    return Running(
        steps=speculative(parts, prompt, stopping, chunk_tokens),
        kv_bytes=lambda: sequence.measured_bytes() - sequence.latent_bytes(),
        drafter_bytes=lambda: None,
        fallbacks=lambda: dict(sequence.fallbacks()),
        latent_bytes=sequence.latent_bytes,
        host_bytes=lambda: sequence.page_counts().host_bytes,
    )


def start(engine: Engine, arm: str, settings: ArmSettings, prompt: tuple[int, ...], stopping: Stopping) -> Running:
    """Begin decoding ``prompt`` on an arm; nothing runs until the first step is asked for."""
    if arm != SPECULATIVE:
        return native(engine.native, prompt, stopping, NATIVE_CHUNK_TOKENS)
    sequence = engine.target.open(engine.drafter.capture, settings.layout)
    drafter = engine.drafter.open()
    parts = Parts(sequence, drafter, engine.accept, settings.depth(), engine.backend.clock, engine.resident)
    return Running(
        steps=speculative(parts, prompt, stopping, settings.chunk_tokens),
        kv_bytes=lambda: sequence.measured_bytes() - sequence.latent_bytes(),
        drafter_bytes=drafter.measured_bytes,
        fallbacks=lambda: fell_back(sequence, drafter),
        latent_bytes=sequence.latent_bytes,
    )
