"""The loop alone, on a scripted target: guards, forced plain steps, counts and what the drafter is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.local import LocalDrafter
from engine.errors import NonFiniteLogitsError, PromptError
from engine.stopping import Stopping
from engine.types import Decision, Draft, Forward, Pause, Step
from engine.verification import greedy
from tests.fakes import virtual_loop
from tests.fakes.scripted_drafter import ScriptedModel

VOCAB = 1000
PROMPT = (1, 2, 3)
ANSWER = tuple(range(100, 140))


class HostClock:
    eager = False

    def now_ns(self) -> int:
        return 0

    def host_ns(self) -> int:
        return 0


@dataclass
class ScriptedSequence:
    """A target that always answers ``ANSWER`` and whose rows are unusable where ``bad`` says (block, row)."""

    bad: set[tuple[int, int]] = field(default_factory=set)
    length: int = 0
    blocks: int = 0
    max_positions: int = 1 << 20
    floor: int = 0
    crops: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def expect(self, new_tokens: int) -> None:
        del new_tokens

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        for start in range(0, len(ids), chunk):
            rows = len(ids[start : start + chunk])
            self.length += rows
            yield Forward(self._row(self.length) if self.length == len(ids) else None, None, start, rows)

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        return self._block([bonus, *draft.tokens])

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        for _ in range(limit):
            if not goes_on():
                return
            forward = self._block([bonus])
            outcome = greedy.decide((), forward.logits[0], forward.logits[1], VOCAB)
            yield outcome, forward
            bonus = outcome.bonus

    def committed(self, forward: Forward, rows: int) -> Any:
        return None

    def crop(self, length: int) -> None:
        assert self.floor <= length <= self.length
        self.crops.append(length)
        self.length = length

    def measured_bytes(self) -> int:
        return 0

    def latent_bytes(self) -> int:
        return 0

    def _row(self, position: int) -> Any:
        return [[ANSWER[position - len(PROMPT)]], [True]]

    def _block(self, tokens: list[int]) -> Forward:
        start = self.floor = self.length
        for offset, token in enumerate(tokens[:1]):
            assert token == ANSWER[start + offset - len(PROMPT)], "the bonus is the newest committed token"
        self.length += len(tokens)
        predicted = [ANSWER[start + offset + 1 - len(PROMPT)] for offset in range(len(tokens))]
        usable = [(self.blocks, row) not in self.bad for row in range(len(tokens))]
        self.blocks += 1
        self.rows.append(len(tokens))
        return Forward([predicted, usable], None, start, len(tokens))


class QueuedSequence(ScriptedSequence):
    """Queues each forward of plain decoding before it reads the one before."""

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        forward = self._block([bonus])
        for index in range(limit):
            decision = greedy.decide((), forward.logits[0], forward.logits[1], VOCAB)
            following = self._block([decision.bonus]) if index + 1 < limit and goes_on() else None
            yield decision, forward
            if following is None:
                return
            forward = following


class ScriptedAccept:
    greedy = True

    def first(self, forward: Forward) -> Decision:
        return self.decide(Draft(), forward)

    def decide(self, draft: Draft, forward: Forward) -> Decision:
        return greedy.decide(draft.tokens, forward.logits[0], forward.logits[1], VOCAB)


def run(sequence: ScriptedSequence, budget: int = 20, depth: int = 4, **drafter: Any) -> tuple[list[Step], Any]:
    model = ScriptedModel(ANSWER, len(PROMPT), VOCAB, drafter.get("wrong", lambda step, index: False))
    state = model.open()
    opened = drafter.get("drafter", state)
    parts = Parts(sequence, opened, ScriptedAccept(), FixedDepth(depth), HostClock())  # type: ignore[arg-type]
    return list(speculative(parts, PROMPT, Stopping(budget), chunk=2)), state


def tokens_of(steps: list[Step]) -> tuple[int, ...]:
    return tuple(token for step in steps for token in step.tokens)


def test_a_right_drafter_commits_whole_blocks_and_the_last_one_is_cut_to_the_budget() -> None:
    sequence = ScriptedSequence()
    steps, state = run(sequence, budget=13)
    assert tokens_of(steps) == ANSWER[:13]
    assert [step.committed for step in steps] == [1, 5, 5, 2]
    assert [step.drafted for step in steps] == [0, 4, 4, 1]
    assert sequence.rows == [5, 5, 2]
    assert state.observed == [*PROMPT, *ANSWER[:12]]


@pytest.mark.parametrize("depth", [0, 4])
@pytest.mark.parametrize("end", range(2, 13))
def test_behind_a_stop_sequence_and_drafter_hold_the_answer_but_its_newest_token(depth: int, end: int) -> None:
    sequence = ScriptedSequence()
    state = ScriptedModel(ANSWER, len(PROMPT), VOCAB, lambda step, index: False).open()
    parts = Parts(sequence, state, ScriptedAccept(), FixedDepth(depth), HostClock())  # type: ignore[arg-type]
    steps = list(speculative(parts, PROMPT, Stopping(20, frozenset({ANSWER[end - 1]}))))
    assert tokens_of(steps) == ANSWER[:end]
    context = [*PROMPT, *ANSWER[: steps[-1].position - len(PROMPT)]]
    assert state.observed == context
    # A token that was accepted is in the cache already, one that the target put in a draft's place is not.
    assert len(context) - len(PROMPT) in ({end - 1} if depth == 0 else {end - 1, end})
    assert sequence.length == len(context)


def test_a_pause_that_a_match_ends_loses_no_forward() -> None:
    class Found(FixedDepth):
        """Drafts nothing, and finds a match at the third token of every pause."""

        def park(self, position: int) -> Pause:
            return Pause(10)

        def interrupts(self, position: int, limit: int, lookup: Any) -> bool:
            looked.append(position)
            return len(looked) % 3 == 0

    looked: list[int] = []
    sequence = QueuedSequence()
    state = ScriptedModel(ANSWER, len(PROMPT), VOCAB, lambda step, index: False).open()
    parts = Parts(sequence, state, ScriptedAccept(), Found(0), HostClock())  # type: ignore[arg-type]
    steps = list(speculative(parts, PROMPT, Stopping(20)))
    assert tokens_of(steps) == ANSWER[:20]
    assert sequence.rows == [1] * 19
    assert sequence.crops == [len(PROMPT) + 19]  # the end of the answer, where nothing was ahead
    assert looked[:6] == [4, 5, 6, 8, 9, 10]  # the fourth token of a pause was under way


def test_every_forward_is_cropped_once_to_what_was_kept() -> None:
    sequence = ScriptedSequence()
    steps, _ = run(sequence, budget=9, wrong=lambda step, index: index >= 1)
    assert tokens_of(steps) == ANSWER[:9]
    assert sequence.crops == [step.position for step in steps if step.drafted]


def test_a_bad_first_row_is_dropped_counted_and_retried_plainly() -> None:
    sequence = ScriptedSequence(bad={(1, 0)})
    steps, state = run(sequence, budget=20)
    assert tokens_of(steps) == ANSWER[:20]
    guarded = [step for step in steps if step.guard]
    assert [(step.tokens, step.committed, step.guard) for step in guarded] == [((), 0, "non-finite logits")]
    after = steps[steps.index(guarded[0]) + 1]
    assert (after.drafted, after.committed) == (0, 1)
    assert state.observed == [*PROMPT, *ANSWER][: len(state.observed)]


def test_a_bad_later_row_costs_only_its_blocks_tail() -> None:
    sequence = ScriptedSequence(bad={(0, 2)})
    steps, _ = run(sequence, budget=10)
    assert tokens_of(steps) == ANSWER[:10]
    assert (steps[1].committed, steps[1].accepted, steps[1].guard) == (2, 1, "non-finite logits")


def test_a_target_that_cannot_even_decode_plainly_is_an_error() -> None:
    with pytest.raises(NonFiniteLogitsError, match="after position 3"):
        run(ScriptedSequence(bad={(0, 0)}), depth=0)
    with pytest.raises(NonFiniteLogitsError):
        run(ScriptedSequence(bad={(0, 0), (1, 0)}))


def test_a_drafter_without_a_draft_costs_one_plain_step_with_its_reason() -> None:
    class Silent(LocalDrafter):
        forwards = 0
        shown: list[int]

        def __init__(self) -> None:
            self.shown = []

        def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
            return Draft(skipped="no match")

        def observe(self, start: int, tokens: tuple[int, ...], features: Any) -> None:
            assert start == len(self.shown)
            self.shown += tokens

    silent = Silent()
    steps, _ = run(ScriptedSequence(), budget=6, drafter=silent)
    assert tokens_of(steps) == ANSWER[:6]
    assert [step.skipped for step in steps[1:-1]] == ["no match"] * 4
    assert silent.shown == [*PROMPT, *ANSWER[:5]]


def test_an_empty_prompt_is_refused() -> None:
    drafter = ScriptedModel(ANSWER, 0, VOCAB, lambda *_: False).open()
    parts = Parts(ScriptedSequence(), drafter, ScriptedAccept(), FixedDepth(1), HostClock())  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="no tokens"):
        next(speculative(parts, (), Stopping(3)))


def test_a_sequence_cancelled_before_its_first_block_still_says_so() -> None:
    model = ScriptedModel(ANSWER, len(PROMPT), VOCAB, lambda *_: False)
    parts = Parts(ScriptedSequence(), model.open(), ScriptedAccept(), FixedDepth(2), HostClock())  # type: ignore[arg-type]
    steps = list(speculative(parts, PROMPT, Stopping(9, cancelled=lambda: True)))
    assert tokens_of(steps) == ANSWER[:1]
    assert [str(step.stop) for step in steps] == ["None", "cancelled"]


class EagerClock:
    """Moves only when work is done."""

    eager = True
    ns = 0

    def spend(self, milliseconds: int) -> None:
        self.ns += milliseconds * 1_000_000

    def now_ns(self) -> int:
        return self.ns

    def host_ns(self) -> int:
        return self.ns


class Shadowing(FixedDepth):
    """Parks for ever and asks for a shadow draft of four tokens in each pause of six."""

    heard: ClassVar[list[tuple[int, int]]] = []

    def park(self, position: int) -> Pause:
        return Pause(6, 4)

    def shadowed(self, drafted: int, accepted: int) -> bool:
        self.heard.append((drafted, accepted))
        return len(self.heard) == 2


@pytest.mark.parametrize("right", [0, 2, 4])
def test_a_shadow_draft_changes_no_token_and_is_counted_where_it_was_proposed(right: int) -> None:
    Shadowing.heard.clear()
    sequence = ScriptedSequence()
    model = ScriptedModel(ANSWER, len(PROMPT), VOCAB, lambda step, index: index >= right)
    state = model.open()
    parts = Parts(sequence, state, ScriptedAccept(), Shadowing(0), HostClock())  # type: ignore[arg-type]
    steps = list(speculative(parts, PROMPT, Stopping(17)))
    assert tokens_of(steps) == ANSWER[:17]
    assert state.observed == [*PROMPT, *ANSWER[:16]]
    assert set(sequence.rows) == {1}
    # Pauses of 6, of 4 because the second shadow ended its own, and of 6 again; the first step is the prefill's.
    assert [step.shadowed for step in steps] == [0, *[4, 0, 0, 0, 0, 0], *[4, 0, 0, 0], *[4, 0, 0, 0, 0, 0]]
    assert [step.drafter_forwards for step in steps] == [int(step.shadowed > 0) for step in steps]
    assert Shadowing.heard == [(4, right)] * 3


def test_under_a_rule_that_draws_nothing_is_proposed_in_the_shadow() -> None:
    class Drawing(ScriptedAccept):
        greedy = False

    state = ScriptedModel(ANSWER, len(PROMPT), VOCAB, lambda *_: False).open()
    parts = Parts(ScriptedSequence(), state, Drawing(), Shadowing(0), HostClock())  # type: ignore[arg-type]
    assert tokens_of(list(speculative(parts, PROMPT, Stopping(9)))) == ANSWER[:9]
    assert state.forwards == 0


class Heard(FixedDepth):
    """Takes what steps are said to take."""

    elapsed_s: ClassVar[list[float | None]] = []

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float | None) -> None:
        self.elapsed_s.append(elapsed_s)


@pytest.mark.parametrize("depth", [0, 4])
@pytest.mark.parametrize("eager", [True, False])
def test_what_a_consumer_takes_between_steps_moves_no_cost(depth: int, eager: bool) -> None:
    clock = EagerClock()
    clock.eager = eager

    class SlowSequence(ScriptedSequence):
        def _block(self, tokens: list[int]) -> Forward:
            clock.spend(10)
            return super()._block(tokens)

    Heard.elapsed_s.clear()
    model = ScriptedModel(ANSWER, len(PROMPT), VOCAB, lambda step, index: False)
    parts = Parts(SlowSequence(), model.open(), ScriptedAccept(), Heard(depth), clock)  # type: ignore[arg-type]
    drafted = []
    for step in speculative(parts, PROMPT, Stopping(20)):
        clock.spend(50)
        drafted += [] if step.prefill else [step.drafted]
    # The first plain step of a pause was not queued while somebody was away.
    plain = [0.01] + [0.01 if eager else None] * (len(drafted) - 1)
    assert Heard.elapsed_s == ([0.01] * len(drafted) if depth and all(drafted) else plain)


@pytest.mark.parametrize("eager", [True, False])
def test_drafting_begins_however_long_a_reader_holds_each_token(eager: bool) -> None:
    clock, prompt = virtual_loop.VirtualClock(eager=eager), virtual_loop.PROMPT
    answer = tuple(virtual_loop.token_at(len(prompt) + index) for index in range(300))
    state = ScriptedModel(answer, len(prompt), 2 * VOCAB, lambda step, index: False).open()
    sequence, accept = virtual_loop.TableSequence(clock), virtual_loop.TableAccept()
    parts = Parts(sequence, state, accept, ControlledDepth(7), clock)  # type: ignore[arg-type]
    steps = []
    for step in speculative(parts, prompt, Stopping(256)):
        clock.spend(50)
        steps.append(step)
    assert tokens_of(steps) == answer[:256]
    assert sum(step.drafted for step in steps) > 128
