"""Values that pass between the decoding policy and a backend.

Knows nothing about array libraries: device arrays travel through as opaque objects.
Positions are absolute and count from 0. The *bonus* is the newest committed token: it is already part of the output
but not yet in the target's cache, and it is always the first row of the next block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

Ids = Any
"""Token ids on the device, int32 ``[rows]``."""
Rows = Any
"""Logits or probabilities on the device, ``[rows, vocabulary]``."""
Features = Any
"""Hidden states of the captured layers on the device, ``[rows, captured layers * hidden size]``."""


FLOAT8, FLOAT8_MOST, FLOAT8_SCALE_BYTES = "float8_e4m3", 448.0, 4
"""Features in a byte a number: each row's own float32 scale, then its numbers as multiples of it, at most that many."""
Proposal = tuple[Sequence[int], Sequence[float]]
"""What a token may be drawn from, on the host: ids, each once, and their probabilities, which sum to 1."""


class StopReason(StrEnum):
    """The stop rule that ended a sequence."""

    EOS = "eos"
    BUDGET = "budget"
    CONTEXT = "context"
    LOOP_GUARD = "loop_guard"
    STOP_STRING = "stop_string"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed for the positions after the bonus.

    ``tokens`` is a tuple of host integers or a device array of ``count`` ids. ``probs`` (sampling only) holds the
    drafter's distribution of each proposed row. A drafter that proposes nothing says why in ``skipped``.

    One from elsewhere came ``came_s`` seconds after it was asked for, or is ``under_way`` since then. Of its tokens
    ``offset`` were overtaken by committed ones before it came, ``right`` of them as it says: what is left follows the
    newest token, nothing where one was wrong. ``waits`` is how often the host has waited for the device to read it.
    """

    tokens: Ids = ()
    count: int = 0
    probs: Rows | None = None
    skipped: str | None = None
    came_s: float | None = None
    under_way: bool = False
    offset: int = 0
    right: int = 0
    waits: int = 0

    @property
    def came(self) -> bool:
        """Whether there is a draft, be all of it overtaken."""
        return self.count > 0 or self.offset > 0

    def first(self, count: int) -> Draft:
        """Return the draft with its first ``count`` tokens at most."""
        if count >= self.count:
            return self
        probs = None if self.probs is None else self.probs[:count]
        return replace(self, tokens=self.tokens[:count], count=count, probs=probs)

    def ids(self) -> tuple[int, ...]:
        """Return the proposed ids on the host; waits for the device where they are there."""
        return self.tokens if isinstance(self.tokens, tuple) else tuple(int(token) for token in self.tokens.tolist())


@dataclass(frozen=True, slots=True)
class Match:
    """What followed an earlier place like this one, known before anything is asked.

    ``length`` is how many tokens before it are the same at both places.
    """

    tokens: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True)
class Choice:
    """How many tokens to draft next, 0 for none, and which of several drafters is asked; a single one has no name.

    Where a drafter's whole draft is what a match says too, the match's tokens follow it, up to ``extended`` in all.
    A draft from elsewhere is waited for at most ``wait_s`` seconds, None for as long as its drafter has patience;
    whenever it comes later, what is left of it is used.
    """

    count: int
    source: str = ""
    extended: int = 0
    wait_s: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """How long to decode without drafting, and how many tokens to propose beside that only to see if they are right.

    A shadow draft is never verified: it is compared with the tokens that plain decoding brings anyway. ``source`` is
    the drafter it is asked of.
    """

    tokens: int
    shadow: int = 0
    source: str = ""


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
class Decision:
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
    the cut. ``position`` is the length of the target's cache after the step. ``shadowed`` is how many tokens were
    proposed only to be compared with what plain decoding brought, ``source`` whose draft was verified where several
    drafters are asked.
    """

    tokens: tuple[int, ...]
    drafted: int = 0
    accepted: int = 0
    committed: int = 0
    position: int = 0
    target_forwards: int = 0
    drafter_forwards: int = 0
    host_syncs: int = 0
    prefill: bool = False
    stop: StopReason | None = None
    guard: str | None = None
    skipped: str | None = None
    shadowed: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What is known about a loaded target without running it. Sizes are counts, ``digest`` is sha256 hex.

    ``reading`` is how its folder was read: `engine.reader.Checkpoint.reading`, empty for a target of no folder.
    """

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
    reading: dict[str, Any] = field(default_factory=dict)


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
class RestorationInfo:
    """What is known about a loaded f_theta without running it. ``digest`` is sha256 hex, taken as a target's is."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class BlasInfo:
    """The matrix library a CPU backend really uses and how that was established."""

    name: str
    evidence: str


@dataclass(frozen=True, slots=True)
class StoredError:
    """What storing one side of one layer's rows cost: squared sums over ``values`` values at ``bits`` bits each."""

    layer: int
    side: str
    values: int
    bits: float
    error_sq: float
    reference_sq: float
