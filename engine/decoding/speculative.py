"""The speculative decoding loop: draft -> verify -> accept -> crop -> emit.

A block is ``[bonus, drafts...]``. The bonus is the newest committed token, so its forward is the one plain decoding
would have run anyway, and the target's correction of a rejected draft is simply the next block's bonus: no extra
forward, and every step commits at least one token. Without a draft the loop decodes ahead, pipelined like any
autoregressive loop, while the drafter goes on observing. A policy may ask for a shadow draft then: tokens proposed but
not verified, only compared with those that plain decoding brings anyway.

Knows nothing about tensors, text or clocks of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from engine.errors import NonFiniteLogitsError, PromptError
from engine.protocols import Accept, Clock, Depth, Drafter, Sequence
from engine.stopping import Stopping
from engine.types import Decision, Draft, Forward, Pause, Step, StopReason
from engine.verification.greedy import accepted_length


@dataclass(frozen=True, slots=True)
class Parts:
    """What one speculative sequence is made of."""

    sequence: Sequence
    drafter: Drafter
    accept: Accept
    depth: Depth
    clock: Clock


class _Watch:
    """Seconds between readings, None on a clock that cannot tell calls apart without waiting for the device."""

    __slots__ = ("_clock", "_last_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock if clock.eager else None
        self._last_ns = 0

    def start(self) -> None:
        """Begin a lap."""
        if self._clock is not None:
            self._last_ns = self._clock.host_ns()

    def lap(self) -> float | None:
        """Return the seconds since the last reading and begin the next lap."""
        if self._clock is None:
            return None
        before, self._last_ns = self._last_ns, self._clock.host_ns()
        return (self._last_ns - before) / 1e9


def speculative(parts: Parts, prompt: tuple[int, ...], stopping: Stopping, chunk: int = 512) -> Iterator[Step]:
    """Decode ``prompt`` and yield every step with its counts; the first step is the prefill's token.

    In fp32 the emitted tokens equal plain autoregressive decoding, whatever the drafter proposes.

    Raises:
        PromptError: If the prompt is empty.
        NonFiniteLogitsError: If a plain forward yields no usable token.
    """
    sequence, drafter, clock = parts.sequence, parts.drafter, parts.clock
    outcome = yield from _prefill(parts, prompt, stopping, chunk)
    if outcome is None:
        return
    bonus, watch = outcome.bonus, _Watch(clock)
    # The forward after a rejected first row is a plain one: if that fails too, the target itself is broken.
    force_plain = False
    while True:
        if stopping.cancelled():
            yield _closing(sequence, StopReason.CANCELLED)
            return
        position = sequence.length
        limit = stopping.remaining_tokens - 1
        count = 0 if force_plain else parts.depth.choose(position, limit)
        began_ns, drafts_before = clock.host_ns(), drafter.forwards
        watch.start()
        draft = drafter.propose(bonus, position, count) if count > 0 else Draft()
        draft_s = watch.lap()
        if draft.count == 0:
            pause = Pause(1) if force_plain or count > 0 else parts.depth.park(position)
            bonus, stopped = yield from _plain(parts, bonus, pause, stopping, draft.skipped)
            if stopped:
                return
            force_plain = False
            continue

        forward = sequence.forward_block(bonus, draft)
        outcome = parts.accept.decide(draft, forward)
        verify_s = watch.lap()
        kept = 1 + outcome.accepted if outcome.tokens else 0
        sequence.crop(position + kept)
        emitted, stop = stopping.cut(outcome.tokens)
        watch.start()
        if kept and stop is None:
            drafter.observe(position, (bonus, *outcome.tokens[:-1]), sequence.committed(forward, kept))
        observe_s = watch.lap()
        parts.depth.record(position, draft.count, outcome, (clock.host_ns() - began_ns) / 1e9)
        yield Step(
            tokens=emitted,
            drafted=draft.count,
            accepted=outcome.accepted,
            committed=len(outcome.tokens),
            position=sequence.length,
            target_forwards=1,
            drafter_forwards=drafter.forwards - drafts_before,
            host_syncs=1,
            stop=stop,
            guard=outcome.guard,
            draft_s=draft_s if draft_s is None else draft_s + (observe_s or 0.0),
            verify_s=verify_s,
        )
        if stop is not None:
            return
        force_plain = not outcome.tokens
        bonus = outcome.bonus if outcome.tokens else bonus


def _prefill(
    parts: Parts, prompt: tuple[int, ...], stopping: Stopping, chunk: int
) -> Generator[Step, None, Decision | None]:
    """Forward the prompt, show every chunk to the drafter and yield the first token's step.

    Returns:
        The first outcome, None when the sequence ended with it.
    """
    last: Forward | None = None
    chunks = 0
    for forward in parts.sequence.prefill(prompt, chunk):
        shown = prompt[forward.start : forward.start + forward.rows]
        parts.drafter.observe(forward.start, shown, parts.sequence.committed(forward, forward.rows))
        last = forward
        chunks += 1
    if last is None:
        raise PromptError("the prompt has no tokens; expected at least one")
    outcome = _usable(parts.accept.first(last), parts.sequence.length)
    emitted, stop = stopping.cut(outcome.tokens)
    yield Step(
        tokens=emitted,
        drafted=0,
        accepted=0,
        committed=1,
        position=parts.sequence.length,
        target_forwards=chunks,
        drafter_forwards=0,
        host_syncs=1,
        prefill=True,
        stop=stop,
    )
    return None if stop is not None else outcome


class _Shadow:
    """A draft that nothing verifies, beside plain decoding from the same bonus; it ends with its last token."""

    def __init__(self, parts: Parts, bonus: int, pause: Pause, limit: int) -> None:
        # Under a rule that draws, another draw than the target's says nothing about being accepted.
        count = min(pause.shadow, limit) if parts.accept.greedy else 0
        before = parts.drafter.forwards
        self._depth = parts.depth
        self._draft = parts.drafter.propose(bonus, parts.sequence.length, count) if count > 0 else Draft()
        self._came: list[int] = []
        self.forwards = parts.drafter.forwards - before
        self.proposed = self._draft.count

    def compare(self, token: int) -> tuple[bool, bool]:
        """Take the next plain token; return whether the draft was read from the device, and whether to end the pause.

        It is read once as many tokens have come as it proposed: by then the device has long had it.
        """
        self._came.append(token)
        if len(self._came) != self.proposed:
            return False, False
        accepted = accepted_length(self._draft.ids(), self._came)
        return not isinstance(self._draft.tokens, tuple), self._depth.shadowed(self.proposed, accepted)


def _plain(
    parts: Parts, bonus: int, pause: Pause, stopping: Stopping, skipped: str | None
) -> Generator[Step, None, tuple[int, bool]]:
    """Decode up to ``pause.tokens`` tokens without verifying drafts and yield a step for each.

    Returns:
        The newest bonus and whether the sequence ended.
    """
    sequence, watch = parts.sequence, _Watch(parts.clock)
    tokens = min(pause.tokens, stopping.remaining_tokens)
    began_ns = parts.clock.host_ns()
    watch.start()
    shadow = _Shadow(parts, bonus, pause, tokens)
    shadow_s, shadowed, forwards = watch.lap(), shadow.proposed, shadow.forwards
    stop, ended = None, False
    ahead = sequence.decode_ahead(bonus, tokens) if parts.accept.greedy else _one_by_one(parts, bonus, tokens)
    for read, forward in ahead:
        verify_s = watch.lap()
        outcome = _usable(read, forward.start)
        emitted, stop = stopping.cut(outcome.tokens)
        if stop is None and stopping.cancelled():
            stop = StopReason.CANCELLED
        watch.start()
        if stop is None:
            parts.drafter.observe(forward.start, (bonus,), sequence.committed(forward, 1))
        draft_s = watch.lap()
        ended_ns = parts.clock.host_ns()
        parts.depth.record(forward.start, 0, outcome, (ended_ns - began_ns) / 1e9)
        began_ns = ended_ns
        bonus = outcome.bonus
        waited, ended = shadow.compare(bonus) if stop is None else (False, False)
        if stop is not None or ended:
            # The forward written ahead of this token is dropped before anyone sees the length.
            sequence.crop(forward.start + 1)
        yield Step(
            tokens=emitted,
            drafted=0,
            accepted=0,
            committed=1,
            position=forward.start + 1,
            target_forwards=1,
            drafter_forwards=forwards,
            host_syncs=1 + waited,
            stop=stop,
            skipped=skipped,
            draft_s=draft_s if draft_s is None else draft_s + (shadow_s or 0.0),
            verify_s=verify_s,
            shadowed=shadowed,
        )
        if stop is not None or ended:
            break
        shadow_s, shadowed, forwards = 0.0, 0, 0
        watch.start()
    return bonus, stop is not None


def _one_by_one(parts: Parts, bonus: int, tokens: int) -> Iterator[tuple[Decision, Forward]]:
    """Decode without drafting under a rule that must draw each token before the next forward can be queued."""
    for _ in range(tokens):
        position = parts.sequence.length
        forward = parts.sequence.forward_block(bonus, Draft())
        parts.sequence.crop(position + 1)
        outcome = parts.accept.decide(Draft(), forward)
        yield outcome, forward
        bonus = outcome.bonus


def _usable(outcome: Decision, position: int) -> Decision:
    if not outcome.tokens:
        raise NonFiniteLogitsError(
            f"the target has no usable next token after position {position}: {outcome.guard}; expected finite logits. "
            "Check the weights (NaN or overflow in a low-precision checkpoint) or use another dtype."
        )
    return outcome


def _closing(sequence: Sequence, reason: StopReason) -> Step:
    return Step(
        tokens=(),
        drafted=0,
        accepted=0,
        committed=0,
        position=sequence.length,
        target_forwards=0,
        drafter_forwards=0,
        host_syncs=0,
        stop=reason,
    )
