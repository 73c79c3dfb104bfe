"""The speculative decoding loop: draft -> verify -> accept -> crop -> emit.

A block is ``[bonus, drafts...]``. The bonus is the newest committed token, so its forward is the one plain decoding
would have run anyway, and the target's correction of a rejected draft is simply the next block's bonus: no extra
forward, and every step commits at least one token. Without a draft the loop decodes ahead, pipelined like any
autoregressive loop, while the drafter goes on observing. A policy may ask for a shadow draft then: tokens proposed but
not verified, only compared with those that plain decoding brings anyway.

A drafter elsewhere brings tokens to verify, or none with a reason, or is under way: then the loop decodes ahead as in a
pause until the drafter is ready with what is left of its draft.

Knows nothing about tensors or text, and reads the time through ``engine.decoding.timing`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from engine.decoding.timing import StepClock
from engine.errors import NonFiniteLogitsError, PromptError
from engine.protocols import Accept, Clock, Depth, Drafter, Sequence
from engine.stopping import Stopping
from engine.types import Choice, Decision, Draft, Forward, Pause, Step, StopReason
from engine.verification.greedy import accepted_length

LATEST_TOKENS = 64
"""How many plain tokens a draft from elsewhere may be late by before it is no longer looked for."""
UNDER_WAY = "a draft was under way"
"""Why a step that waited for none verified none."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What one speculative sequence is made of."""

    sequence: Sequence
    drafter: Drafter
    accept: Accept
    depth: Depth
    clock: Clock
    resident: Callable[[], AbstractContextManager[None]] = nullcontext
    """What holds the weights where they are computed with, entered while the loop runs."""


def speculative(
    parts: Parts, prompt: tuple[int, ...], stopping: Stopping, chunk: int = 512, cached: int = 0
) -> Iterator[Step]:
    """Decode ``prompt`` and yield every step with its counts and times; the first step is the prefill's token.

    The first ``cached`` tokens of the prompt are in the caches of sequence and drafter already. The drafter is closed
    when the sequence ends or is left. What the last step committed is shown to it once that step was taken, so that
    both hold the same tokens for another turn; a caller who leaves at that step does without.

    Decoding ends where the target's context does, whatever the budget.

    In fp32 the emitted tokens equal plain autoregressive decoding, whatever the drafter proposes.

    Raises:
        PromptError: If the prompt is empty.
        NonFiniteLogitsError: If a plain forward yields no usable token.
    """
    run = _Run(parts.sequence, parts.drafter, parts.accept, parts.depth, StepClock(parts.clock), stopping)
    stopping.room_tokens = parts.sequence.max_positions - len(prompt)
    parts.sequence.expect(stopping.remaining_tokens)
    try:
        run.depth.begin(parts.drafter.round_trip_s)
        with parts.resident():
            yield from run.clock.passing(_decode(run, prompt, chunk, cached))
    finally:
        parts.drafter.close()


@dataclass(frozen=True, slots=True)
class _Run:
    """The parts with their clock, and when to stop."""

    sequence: Sequence
    drafter: Drafter
    accept: Accept
    depth: Depth
    clock: StepClock
    stopping: Stopping

    def ask(self, bonus: int, choice: Choice) -> Draft:
        """Ask for the draft that was chosen, none where none was."""
        if choice.count == 0:
            return Draft()
        self.drafter.select(choice)
        draft = self.drafter.ask(bonus, self.sequence.length, choice.count, choice.wait_s)
        if choice.wait_s != 0.0 and (draft.count or draft.under_way):
            self.clock.leave_out(draft.came_s or 0.0)
        self.tell(choice.count, draft)
        return draft

    def tell(self, count: int, draft: Draft) -> None:
        """Tell the policy what came of an ask; an ask that came to nothing ends with a plain step that begins now."""
        nothing = not (draft.came or draft.under_way)
        self.depth.asked(self.sequence.length, count, draft, self.clock.lap_s() if nothing else 0.0)


def _decode(run: _Run, prompt: tuple[int, ...], chunk: int, cached: int) -> Iterator[Step]:
    """Draft, verify, accept, crop and emit until a stop rule ends the sequence."""
    sequence, drafter, depth, clock, stopping = run.sequence, run.drafter, run.depth, run.clock, run.stopping
    bonus = yield from _prefill(run, prompt, chunk, cached)
    # The forward after a rejected first row is a plain one: if that fails too, the target itself is broken.
    force_plain = False
    while bonus is not None:
        if stopping.cancelled():
            yield Step(tokens=(), position=sequence.length, stop=StopReason.CANCELLED)
            return
        position, forwards = sequence.length, drafter.forwards
        limit = 0 if force_plain else stopping.remaining_tokens - 1
        choice = depth.choose(position, limit, partial(drafter.lookup, bonus))
        clock.begin()
        draft = run.ask(bonus, choice)
        if draft.under_way:
            beside = _Beside(run, draft, choice.count, forwards, shadow=False)
            bonus = yield from _plain(run, bonus, LATEST_TOKENS, beside, UNDER_WAY)
            run.tell(choice.count, beside.draft)
            draft = beside.draft.first(max(0, stopping.remaining_tokens - 1))
            if bonus is None or draft.count == 0:
                continue
            position, forwards = sequence.length, drafter.forwards
        if draft.count == 0:
            pause = Pause(1)
            if not force_plain and choice.count == 0:
                pause = depth.park(position)
                clock.begin()
            bonus = yield from _plain(run, bonus, pause.tokens, _shadow(run, bonus, pause), draft.skipped)
            force_plain = False
            continue

        forward = sequence.forward_block(bonus, draft)
        decision = run.accept.decide(draft, forward)
        rows = 1 + decision.accepted if decision.tokens else 0
        emitted, stop = stopping.cut(decision.tokens)
        # Nothing behind a stop: whoever goes on does so from there, and a recurrent state does not go back later.
        rows = min(rows, 1 + len(emitted))
        sequence.crop(position + rows)
        if rows and stop is None:
            drafter.observe(position, (bonus, *decision.tokens[:-1]), sequence.committed(forward, rows))
        depth.record(position, draft.count, decision, clock.step_s(draft.count))
        yield Step(
            tokens=emitted,
            drafted=draft.count,
            accepted=decision.accepted,
            committed=len(decision.tokens),
            position=sequence.length,
            target_forwards=1,
            drafter_forwards=drafter.forwards - forwards,
            host_syncs=1 + draft.waits,
            stop=stop,
            guard=decision.guard,
            source=choice.source,
        )
        if stop is not None:
            drafter.observe(position, (bonus, *emitted[: rows - 1]), sequence.committed(forward, rows))
            return
        force_plain = not decision.tokens
        if rows:
            bonus = decision.bonus


def _prefill(run: _Run, prompt: tuple[int, ...], chunk: int, cached: int) -> Generator[Step, None, int | None]:
    """Forward what is not held of the prompt, show every chunk to the drafter and yield the first token's step.

    Returns:
        The first bonus, None when the sequence ended with it.
    """
    last: Forward | None = None
    chunks, position = 0, cached
    for forward in run.sequence.prefill(prompt[cached:], chunk):
        shown = prompt[position : position + forward.rows]
        run.drafter.observe(position, shown, run.sequence.committed(forward, forward.rows))
        last, position = forward, position + forward.rows
        chunks += 1
    if last is None:
        raise PromptError("the prompt has no tokens; expected at least one")
    decision = _usable(run.accept.first(last), run.sequence.length)
    emitted, stop = run.stopping.cut(decision.tokens)
    forwards = run.drafter.forwards
    if stop is None:
        run.drafter.expect(run.stopping.remaining_tokens)
    yield Step(
        tokens=emitted,
        committed=1,
        position=run.sequence.length,
        target_forwards=chunks,
        drafter_forwards=run.drafter.forwards - forwards,
        host_syncs=1,
        prefill=True,
        stop=stop,
    )
    return None if stop is not None else decision.bonus


class _Beside:
    """A draft beside plain decoding from the same bonus: under way to be verified, or a shadow only to be compared."""

    def __init__(self, run: _Run, draft: Draft, count: int, forwards: int, *, shadow: bool) -> None:
        self.draft, self.forwards, self.shadow = draft, forwards, shadow
        # A shadow that is under way is taken for what was asked until it is looked at.
        self.proposed = (count if draft.under_way else draft.count) if shadow else 0
        self._run, self._count = run, count
        self._tokens: list[int] = []
        self._compared = False

    def take(self, token: int) -> tuple[bool, bool]:
        """Take the next plain token; return whether the draft was read from the device, and whether to end the pause.

        One that is verified ends it once it is ready, and is what is left behind each token that still comes. A shadow
        is read once as many tokens have come as it proposed: by then the device has long had it.
        """
        if not self.shadow:
            self.draft = self._run.drafter.ready(token)
            return False, not self.draft.under_way
        if self.draft.under_way:
            self.draft = self._run.drafter.ready(token)
            if not self.draft.under_way:
                self._run.tell(self._count, self.draft)
        else:
            self._tokens.append(token)
        return self.compare() if self.draft.offset + len(self._tokens) >= self.proposed else (False, False)

    def compare(self) -> tuple[bool, bool]:
        """Compare a shadow with as many tokens as came; return as `take` does."""
        draft = self.draft
        if self._compared or not draft.came:
            return False, False
        self._compared = True
        rest = min(draft.count, len(self._tokens))
        right = draft.right + (accepted_length(draft.ids()[:rest], self._tokens) if rest else 0)
        return not isinstance(draft.tokens, tuple), self._run.depth.shadowed(draft.offset + rest, right)


def _shadow(run: _Run, bonus: int, pause: Pause) -> _Beside:
    """Ask for the shadow draft of a pause, none where none was chosen."""
    # Under a rule that draws, another draw than the target's says nothing about being accepted.
    count = min(pause.shadow, pause.tokens, run.stopping.remaining_tokens) if run.accept.greedy else 0
    forwards = run.drafter.forwards
    return _Beside(run, run.ask(bonus, Choice(count, pause.source)), count, forwards, shadow=True)


def _plain(run: _Run, bonus: int, most: int, beside: _Beside, skipped: str | None) -> Generator[Step, None, int | None]:
    """Decode up to ``most`` tokens without verifying drafts and yield a step for each.

    Returns:
        The newest bonus, None when the sequence ended.
    """
    sequence, drafter, stopping = run.sequence, run.drafter, run.stopping
    tokens = min(most, stopping.remaining_tokens)
    forwards, shadowed = beside.forwards, beside.proposed
    stop, ended = None, False

    def goes_on() -> bool:
        return not ended

    decode = sequence.decode_ahead if run.accept.greedy else partial(_one_by_one, run)
    ahead = decode(bonus, tokens, goes_on)
    for count, (read, forward) in enumerate(ahead, 1):
        decision = _usable(read, forward.start)
        emitted, stop = stopping.cut(decision.tokens)
        if stop is None and stopping.cancelled():
            stop = StopReason.CANCELLED
        if stop is None:
            drafter.observe(forward.start, (bonus,), sequence.committed(forward, 1))
        run.depth.record(forward.start, 0, decision, run.clock.step_s(0))
        before, bonus = bonus, decision.bonus
        waited, ends = beside.take(bonus) if stop is None else (False, False)
        ended |= ends
        if stop is None and not ended and count < tokens and beside.shadow:
            limit = stopping.remaining_tokens - 1
            ended = run.depth.interrupts(forward.start + 1, limit, partial(drafter.lookup, bonus))
            if ended:
                # A draft that was paid for tells as much as there is to compare it with.
                waited |= beside.compare()[0]
        if stop is not None:
            # The forward written ahead of this token is dropped before anyone sees the length.
            sequence.crop(forward.start + 1)
        yield Step(
            tokens=emitted,
            committed=1,
            position=forward.start + 1,
            target_forwards=1,
            drafter_forwards=drafter.forwards - forwards,
            host_syncs=1 + waited,
            stop=stop,
            skipped=skipped,
            shadowed=shadowed,
        )
        if stop is not None:
            drafter.observe(forward.start, (before,), sequence.committed(forward, 1))
            break
        # After a pause that is ended, the forward under way is read: its token is the last.
        shadowed, forwards = 0, drafter.forwards
    return None if stop is not None else bonus


def _one_by_one(run: _Run, bonus: int, tokens: int, goes_on: Callable[[], bool]) -> Iterator[tuple[Decision, Forward]]:
    """Decode without drafting under a rule that must draw each token before the next forward can be queued."""
    for _ in range(tokens):
        if not goes_on():
            return
        position = run.sequence.length
        forward = run.sequence.forward_block(bonus, Draft())
        run.sequence.crop(position + 1)
        decision = run.accept.decide(Draft(), forward)
        yield decision, forward
        bonus = decision.bonus


def _usable(decision: Decision, position: int) -> Decision:
    if not decision.tokens:
        raise NonFiniteLogitsError(
            f"the target has no usable next token after position {position}: {decision.guard}; expected finite logits. "
            "Check the weights (NaN or overflow in a low-precision checkpoint) or use another dtype."
        )
    return decision
