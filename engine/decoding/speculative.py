"""The speculative decoding loop: draft -> verify -> accept -> crop -> emit.

A block is ``[bonus, drafts...]``. The bonus is the newest committed token, so its forward is the one plain decoding
would have run anyway, and the target's correction of a rejected draft is simply the next block's bonus: no extra
forward, and every step commits at least one token. Without a draft the loop decodes ahead, pipelined like any
autoregressive loop, while the drafter goes on observing. A policy may ask for a shadow draft then: tokens proposed but
not verified, only compared with those that plain decoding brings anyway.

Knows nothing about tensors, text or clocks; ``engine.decoding.timing`` wraps what it calls and takes the times.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from engine.decoding.timing import StepTimes, TimedDepth
from engine.errors import NonFiniteLogitsError, PromptError
from engine.protocols import Accept, Clock, Depth, Drafter, Pending, Sequence
from engine.stopping import Stopping
from engine.types import LATE, Choice, Decision, Draft, Forward, Pause, Step, StopReason
from engine.verification.greedy import accepted_length

LATEST_TOKENS = 64
"""How many plain tokens a draft from elsewhere may be late by before it is no longer looked for."""


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
    parts: Parts, prompt: tuple[int, ...], stopping: Stopping, chunk: int = 512, held: int = 0
) -> Iterator[Step]:
    """Decode ``prompt`` and yield every step with its counts and times; the first step is the prefill's token.

    The first ``held`` tokens of the prompt are in the caches of sequence and drafter already. The drafter is closed
    when the sequence ends or is left. What the last step committed is shown to it once that step was taken, so that
    both hold the same tokens for another turn; a caller who leaves at that step does without.

    Decoding ends where the target's context does, whatever the budget.

    In fp32 the emitted tokens equal plain autoregressive decoding, whatever the drafter proposes.

    Raises:
        PromptError: If the prompt is empty.
        NonFiniteLogitsError: If a plain forward yields no usable token.
    """
    times = StepTimes(parts.clock)
    run = _Run(
        sequence=times.sequence(parts.sequence),
        drafter=times.drafter(parts.drafter),
        accept=times.accept(parts.accept),
        depth=TimedDepth(parts.depth, parts.clock),
        stopping=stopping,
    )
    stopping.room_tokens = parts.sequence.max_positions - len(prompt)
    parts.sequence.expect(stopping.remaining_tokens)
    try:
        run.depth.begin(parts.drafter.round_trip_s)
        with parts.resident():
            for step in _decode(run, prompt, chunk, held):
                filled = times.filled(step)
                given_ns = parts.clock.host_ns()
                yield filled
                run.depth.pass_over(parts.clock.host_ns() - given_ns)
    finally:
        parts.drafter.close()


@dataclass(frozen=True, slots=True)
class _Run:
    """The parts with their instrument, and when to stop."""

    sequence: Sequence
    drafter: Drafter
    accept: Accept
    depth: TimedDepth
    stopping: Stopping


def _decode(run: _Run, prompt: tuple[int, ...], chunk: int, held: int) -> Iterator[Step]:
    """Draft, verify, accept, crop and emit until a stop rule ends the sequence."""
    sequence, drafter, depth, stopping = run.sequence, run.drafter, run.depth, run.stopping
    bonus = yield from _prefill(run, prompt, chunk, held)
    # The forward after a rejected first row is a plain one: if that fails too, the target itself is broken.
    force_plain = False
    while bonus is not None:
        if stopping.cancelled():
            yield Step(tokens=(), position=sequence.length, stop=StopReason.CANCELLED)
            return
        position, forwards = sequence.length, drafter.forwards
        limit = 0 if force_plain else stopping.remaining_tokens - 1
        choice = depth.choose(position, limit, partial(drafter.lookup, bonus))
        pending = _asked(drafter, bonus, position, choice)
        draft = depth.take(pending, choice)
        if draft.skipped == LATE:
            late = _LateDraft(run, pending, forwards)
            bonus = yield from _plain(run, bonus, Pause(LATEST_TOKENS), late, LATE)
            draft = late.left()
            if bonus is None or draft.count == 0:
                continue
            position, forwards = sequence.length, drafter.forwards
        if draft.count == 0:
            if choice.count > 0:
                depth.unanswered(position, choice.count)
            pause = Pause(1) if force_plain or choice.count > 0 else depth.park(position)
            shadow = _Shadow(run, bonus, pause)
            bonus = yield from _plain(run, bonus, pause, shadow, draft.skipped)
            force_plain = False
            continue

        forward = sequence.forward_block(bonus, draft)
        decision = run.accept.decide(draft, forward)
        kept = 1 + decision.accepted if decision.tokens else 0
        emitted, stop = stopping.cut(decision.tokens)
        # Nothing behind a stop: whoever goes on does so from there, and a recurrent state does not go back later.
        kept = min(kept, 1 + len(emitted))
        sequence.crop(position + kept)
        if kept and stop is None:
            drafter.observe(position, (bonus, *decision.tokens[:-1]), sequence.committed(forward, kept))
        depth.record(position, draft.count, decision)
        yield Step(
            tokens=emitted,
            drafted=draft.count,
            accepted=decision.accepted,
            committed=len(decision.tokens),
            position=sequence.length,
            target_forwards=1,
            drafter_forwards=drafter.forwards - forwards,
            host_syncs=1,
            stop=stop,
            guard=decision.guard,
            source=choice.source,
        )
        if stop is not None:
            drafter.observe(position, (bonus, *emitted[: kept - 1]), sequence.committed(forward, kept))
            return
        force_plain = not decision.tokens
        if kept:
            bonus = decision.bonus


def _asked(drafter: Drafter, bonus: int, position: int, choice: Choice) -> Pending:
    """Ask for the draft that was chosen, none where none was."""
    if choice.count == 0:
        return Draft()
    drafter.select(choice)
    return drafter.ask(bonus, position, choice.count)


def _prefill(run: _Run, prompt: tuple[int, ...], chunk: int, held: int) -> Generator[Step, None, int | None]:
    """Forward what is not held of the prompt, show every chunk to the drafter and yield the first token's step.

    Returns:
        The first bonus, None when the sequence ended with it.
    """
    last: Forward | None = None
    chunks, position = 0, held
    for forward in run.sequence.prefill(prompt[held:], chunk):
        shown = prompt[position : position + forward.rows]
        run.drafter.observe(position, shown, run.sequence.committed(forward, forward.rows))
        last, position = forward, position + forward.rows
        chunks += 1
    if last is None:
        raise PromptError("the prompt has no tokens; expected at least one")
    decision = _usable(run.accept.first(last), run.sequence.length)
    emitted, stop = run.stopping.cut(decision.tokens)
    yield Step(
        tokens=emitted,
        committed=1,
        position=run.sequence.length,
        target_forwards=chunks,
        host_syncs=1,
        prefill=True,
        stop=stop,
    )
    return None if stop is not None else decision.bonus


class _LateDraft:
    """A draft from elsewhere that is under way beside plain decoding from the same bonus, to be shortened by that."""

    proposed = 0
    interruptible = False
    """Whether a match may end the pause: what is under way would be lost by it."""

    def __init__(self, run: _Run, pending: Pending, forwards: int) -> None:
        self.forwards = forwards
        self._run = run
        self._pending = pending
        self._came: list[int] = []
        self._draft = Draft(skipped=LATE)

    def compare(self, token: int) -> tuple[bool, bool]:
        """Take the next plain token; return that nothing was read from the device, and whether the draft is there."""
        self._came.append(token)
        self._draft = self._pending.take(0.0)
        return False, self._draft.skipped != LATE

    def end(self) -> tuple[bool, bool]:
        """Return that nothing was read: what is under way is looked at by `left`."""
        return False, False

    def left(self) -> Draft:
        """Return what of the draft is still to be verified: nothing if another token came than it says, or all did."""
        depth, draft, passed = self._run.depth, self._draft, len(self._came)
        if draft.count == 0:
            if draft.skipped == LATE:
                depth.silent()
            else:
                depth.unanswered(self._run.sequence.length, 1)
            return draft
        ids = draft.ids()
        right = accepted_length(ids, self._came)
        depth.came_late(draft.came_s, len(ids), passed, right)
        rest = ids[passed:][: max(0, self._run.stopping.remaining_tokens - 1)] if right == passed else ()
        probs = None if draft.probs is None else draft.probs[passed : passed + len(rest)]
        return Draft(rest, len(rest), probs)


class _Shadow:
    """A draft that nothing verifies, beside plain decoding from the same bonus; it ends with its last token."""

    interruptible = True

    def __init__(self, run: _Run, bonus: int, pause: Pause) -> None:
        # Under a rule that draws, another draw than the target's says nothing about being accepted.
        limit = min(pause.tokens, run.stopping.remaining_tokens)
        self.forwards = run.drafter.forwards
        count = min(pause.shadow, limit) if run.accept.greedy else 0
        if count > 0:
            run.drafter.select(Choice(count, pause.source))
        self._pending: Pending = run.drafter.ask(bonus, run.sequence.length, count) if count > 0 else Draft()
        draft = self._pending.take(0.0)
        # One that is under way is taken for what was asked until it is looked at.
        self.proposed = count if draft.skipped == LATE else draft.count
        self._late = draft.skipped == LATE
        if self._late:
            run.depth.waited(0.0, None)
        if count > 0 and self.proposed == 0:
            run.depth.unanswered(run.sequence.length, count)
        self._run = run
        self._came: list[int] = []
        self._compared = False

    def compare(self, token: int) -> tuple[bool, bool]:
        """Take the next plain token; return whether the draft was read from the device, and whether to end the pause.

        It is read once as many tokens have come as it proposed: by then the device has long had it. One from elsewhere
        is looked for at each token.
        """
        self._came.append(token)
        if self._late:
            self._look()
        return (False, False) if len(self._came) < self.proposed else self.end()

    def end(self) -> tuple[bool, bool]:
        """Compare with as many tokens as came; return as `compare` does."""
        if self._compared or not self.proposed or self._late:
            return False, False
        draft, self._compared = self._pending.take(0.0), True
        if draft.count == 0:
            return False, False
        compared = min(draft.count, len(self._came))
        accepted = accepted_length(draft.ids()[:compared], self._came)
        return not isinstance(draft.tokens, tuple), self._run.depth.shadowed(compared, accepted)

    def _look(self) -> None:
        """See whether a draft from elsewhere is there, or is known not to come."""
        draft = self._pending.take(0.0)
        self._late = draft.skipped == LATE
        if draft.count:
            self._run.depth.waited(0.0, draft.came_s)
        elif not self._late:
            self._run.depth.unanswered(self._run.sequence.length, self.proposed)


def _plain(
    run: _Run, bonus: int, pause: Pause, beside: _LateDraft | _Shadow, skipped: str | None
) -> Generator[Step, None, int | None]:
    """Decode up to ``pause.tokens`` tokens without verifying drafts and yield a step for each.

    Returns:
        The newest bonus, None when the sequence ended.
    """
    sequence, drafter, stopping = run.sequence, run.drafter, run.stopping
    tokens = min(pause.tokens, stopping.remaining_tokens)
    forwards, shadowed = beside.forwards, beside.proposed
    stop, ended = None, False

    def goes_on() -> bool:
        return not ended

    decode = sequence.decode_ahead if run.accept.greedy else partial(_one_by_one, run)
    ahead = decode(bonus, tokens, goes_on)
    for came, (read, forward) in enumerate(ahead, 1):
        decision = _usable(read, forward.start)
        emitted, stop = stopping.cut(decision.tokens)
        if stop is None and stopping.cancelled():
            stop = StopReason.CANCELLED
        if stop is None:
            drafter.observe(forward.start, (bonus,), sequence.committed(forward, 1))
        run.depth.record(forward.start, 0, decision)
        before, bonus = bonus, decision.bonus
        waited, ends = beside.compare(bonus) if stop is None else (False, False)
        ended |= ends
        if stop is None and not ended and came < tokens and beside.interruptible:
            limit = stopping.remaining_tokens - 1
            ended = run.depth.interrupts(forward.start + 1, limit, partial(drafter.lookup, bonus))
            if ended:
                # A draft that was paid for tells as much as there is to compare it with.
                waited |= beside.end()[0]
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
