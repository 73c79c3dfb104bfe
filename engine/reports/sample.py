"""One measured generation. Every number is a counter or a clock reading; nothing here is derived."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True)
class Stages:
    """Seconds, device synchronised. `decode_s` runs from the first token's availability to the last one's.

    `draft_s`, `verify_s` and `other_s` are None: a call may only queue work, and telling the parts of a step apart
    needs a wait between them, which would slow the measured arm. `kakeya-engine bench overhead` measures them in a pass
    of its own that does wait, and says how much slower that pass was.
    """

    prefill_s: float
    decode_s: float
    total_s: float
    draft_s: None = None
    verify_s: None = None
    other_s: None = None


@dataclass(frozen=True)
class Counters:
    """What ran, counted where it ran: calls, not acceptances, prove that a component was alive.

    ``shadow_drafts`` were proposed beside plain decoding and compared with it, never verified; they are no drafted
    tokens.
    """

    target_forwards: int
    drafter_forwards: int
    drafted_tokens: int
    accepted_tokens: int
    steps: int
    host_syncs: int
    guard_rejections: int
    shadow_drafts: int = 0


@dataclass(frozen=True)
class Memory:
    """Bytes read from the real buffers after at least one decode step; None where there is no counter."""

    kv_bytes: int
    kv_bytes_peak: int | None = None
    drafter_bytes: int | None = None
    allocator_active_bytes: int | None = None


@dataclass(frozen=True)
class Sample:
    """A row of an arm.

    Attributes:
        id: `launch/order_index/arm/prompt_id`, the name used on the sample pipe.
        accepted_per_step, drafted_per_step: one entry a decode step, None for an arm without steps.
        expected, correct: for prompts with a known answer.
        prompt_ids: the prompt's tokens; a report stores those of each distinct prompt once, beside its arms.
    """

    id: str
    prompt_id: str
    prompt_digest: str
    kind: str
    launch: int
    order_index: int
    is_warmup: bool
    prompt_tokens: int
    output_tokens: int
    tokens: tuple[int, ...]
    token_digest: str
    text: str
    stop_reason: str
    stages: Stages
    counters: Counters
    memory: Memory
    accepted_per_step: tuple[int, ...] | None = None
    drafted_per_step: tuple[int, ...] | None = None
    loop_onset: int | None = None
    top2_margin_at_divergence: float | None = None
    expected: str | None = None
    correct: bool | None = None
    prompt_ids: tuple[int, ...] = field(default=(), repr=False)

    @property
    def idle_refusals(self) -> int:
        """Steps that committed nothing because the guard refused their first row: as many as fit the tokens.

        A refused later row costs its block's tail only; after a refused first row the next step drafts nothing.
        """
        accepted, drafted = self.accepted_per_step or (), self.drafted_per_step or ()
        pairs = zip(accepted, pairwise(drafted), strict=False)  # the last step has none after it
        could = sum(1 for taken, (drafts, then) in pairs if drafts and not taken and not then)
        excess = 1 + len(accepted) + sum(accepted) - self.output_tokens
        return max(0, min(self.counters.guard_rejections, could, excess))
