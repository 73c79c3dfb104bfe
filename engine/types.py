"""Values that pass between the decoding policy and a backend.

Knows nothing about array libraries: device arrays travel through as opaque objects.
Positions are absolute and count from 0. The *bonus* is the newest committed token: it is already part of the output
but not yet in the target's cache, and it is always the first row of the next block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Ids = Any
"""Token ids on the device, int32 ``[rows]``."""
Rows = Any
"""Logits or probabilities on the device, ``[rows, vocabulary]``."""
Features = Any
"""Hidden states of the captured layers on the device, ``[rows, captured layers * hidden size]``."""


class CacheLayout(StrEnum):
    """How a target stores the keys and values of its sliding-window layers."""

    NATIVE = "native"
    """Window plus one block of rows on sliding layers, every row on full-attention layers."""
    FULL = "full"
    """Every row on every layer, the window enforced by the mask: a labelled study."""


class StopReason(StrEnum):
    """Why a sequence ended."""

    EOS = "eos"
    BUDGET = "budget"
    LOOP_GUARD = "loop_guard"
    STOP_STRING = "stop_string"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed for the positions after the bonus.

    ``tokens`` is a tuple of host integers or a device array of ``count`` ids. ``probs`` (sampling only) holds the
    drafter's distribution of each proposed row. A drafter that proposes nothing says why in ``skipped``.
    """

    tokens: Ids = ()
    count: int = 0
    probs: Rows | None = None
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Forward:
    """One target forward over ``rows`` positions from ``start`` on.

    ``logits`` is ``[rows, vocabulary]`` for a block and ``[1, vocabulary]`` (last row only) or None for a prefill
    chunk; ``features`` is ``[rows, captured * hidden]`` or None when no layer is captured.
    """

    logits: Rows
    features: Features
    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the target decided about one forward, read in a single host synchronisation.

    ``tokens`` are the accepted draft tokens followed by the target's own next token (recovered or bonus). They are
    empty only when ``guard`` rejected the first row. ``min_entropy_nats`` is the target's uncertainty about the newest
    token, -ln of its probability, from backends that know it.
    """

    tokens: tuple[int, ...]
    accepted: int
    guard: str | None = None
    min_entropy_nats: float | None = None

    @property
    def bonus(self) -> int:
        """The newest committed token: the first row of the next block."""
        return self.tokens[-1]


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the decoding loop as its caller sees it.

    ``tokens`` are the emitted tokens after the stop rule cut them; ``accepted`` and ``committed`` are counted before
    the cut. ``position`` is the length of the target's cache after the step.
    """

    tokens: tuple[int, ...]
    drafted: int
    accepted: int
    committed: int
    position: int
    target_forwards: int
    drafter_forwards: int
    host_syncs: int
    prefill: bool = False
    stop: StopReason | None = None
    guard: str | None = None
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What is known about a loaded target without running it. Sizes are counts, ``digest`` is sha256 hex."""

    name: str
    digest: str
    format: str
    parameters: int
    vocab_size: int
    hidden_size: int
    layer_count: int
    max_positions: int
    sliding_window: int | None
    dtype: str
    stop_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """What is known about a drafter without running it. ``block_size`` counts the bonus row."""

    name: str
    digest: str | None
    format: str
    parameters: int
    block_size: int | None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BlasInfo:
    """The matrix library a CPU backend really uses and how that was established."""

    name: str
    evidence: str
