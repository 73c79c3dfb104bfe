"""A drafter that answers late or never, in the real loop on a virtual clock: what the controller lets it cost."""

from __future__ import annotations

from typing import Any

import pytest

from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth, VerifiedOnly
from engine.protocols import Depth, Drafter
from engine.types import Choice, Decision, Draft, Forward, Pause
from tests.fakes.replay import World, replay
from tests.fakes.virtual_loop import (
    GoingOn,
    QueuedSequence,
    RemoteDrafter,
    TableSequence,
    VirtualClock,
    decoded_ms,
    plainly_ms,
    speed,
)

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("blocks", [False, True], ids=["waited for", "waits inside ask"])
@pytest.mark.parametrize("wait_ms", [1.0, 10.0, 50.0, 150.0])
@pytest.mark.parametrize(("tokens", "share"), [(256, 0.94), (1024, 0.98), (4096, 0.98)])
def test_a_drafter_that_never_answers_in_time_costs_next_to_nothing(
    blocks: bool, wait_ms: float, tokens: int, share: float
) -> None:
    assert speed(tokens, wait_ms=wait_ms, blocks=blocks)[0] >= (share if blocks else 0.98)


@pytest.mark.parametrize("depth", [None, GoingOn(3), GoingOn(7)], ids=["controller", "3", "7"])
@pytest.mark.parametrize("wait_ms", [1.0, 50.0, 150.0, 1000.0])
@pytest.mark.parametrize("tokens", [256, 1024])
def test_a_draft_that_is_late_is_shortened_and_never_costs(depth: Depth | None, wait_ms: float, tokens: int) -> None:
    for right in (lambda _: True, lambda position: position % 3 != 0, lambda _: False):
        assert speed(tokens, depth, wait_ms=wait_ms, right=right, answers=lambda _: True)[0] >= 0.98


@pytest.mark.parametrize("kind", [TableSequence, QueuedSequence])
@pytest.mark.parametrize("slows", [1.0, 1.3, 4.0])
@pytest.mark.parametrize("wait_ms", [5.0, 50.0, 58.0, 400.0])
def test_drafts_under_way_that_slow_the_target_down_are_asked_for_no_more_than_that_pays(
    wait_ms: float, slows: float, kind: Any
) -> None:
    for right in (lambda _: True, lambda position: position % 3 != 0, lambda _: False):
        speedup, _ = speed(
            1024, None, slows, kind, wait_ms=wait_ms, trip_ms=wait_ms / 2, right=right, answers=lambda _: True
        )
        assert speedup >= 0.97


@pytest.mark.parametrize(("slows", "kind"), [(1.3, TableSequence), (1.3, QueuedSequence)])
def test_what_plain_steps_lose_beside_a_draft_is_seen_where_the_queue_is_waited_for(slows: float, kind: Any) -> None:
    policy = ControlledDepth(7)
    speed(1024, policy, slows, kind, wait_ms=25.0, trip_ms=12.0, answers=lambda _: True)
    assert policy.sources[""].latency.slows == pytest.approx(slows, abs=0.12)


@pytest.mark.parametrize(("trip_ms", "asks"), [(0.0, 5), (90.0, 2)])
def test_one_whose_drafts_come_too_late_were_they_right_is_next_to_never_asked(trip_ms: float, asks: int) -> None:
    speedup, drafter = speed(1024, wait_ms=100.0, trip_ms=trip_ms, slows=4.0, answers=lambda _: True)
    assert speedup >= (0.99 if trip_ms else 0.95)
    assert 0 < len(drafter.positions) <= asks


def test_one_that_is_too_far_away_is_asked_again_in_time_over_short_answers_too() -> None:
    policy, drafters = ControlledDepth(7), list[RemoteDrafter]()

    def make(clock: VirtualClock) -> Drafter:
        drafters.append(RemoteDrafter(clock, wait_ms=100.0, trip_ms=90.0, answers=lambda _: True))
        return drafters[-1]

    for _ in range(20):
        decoded_ms(make, policy, 64)
    assert 0 < sum(len(drafter.positions) for drafter in drafters) <= 4


def test_one_slow_draft_in_ten_does_not_end_drafting() -> None:
    class Jittery(RemoteDrafter):
        def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
            self.wait_ms = 300.0 if len(self.positions) % 10 == 0 else 20.0
            return super().ask(bonus, position, count, wait_s)

    plain_ms = plainly_ms(2048)
    jittery_ms = decoded_ms(lambda clock: Jittery(clock, 20.0, answers=lambda _: True), ControlledDepth(7), 2048)
    assert plain_ms / jittery_ms >= 1.4


def test_plain_steps_are_timed_again_where_nearly_all_are_beside_a_draft() -> None:
    policy = ControlledDepth(7)
    speed(4096, policy, wait_ms=25.0, answers=lambda _: True)
    assert all(policy.buckets[number].plain.timed_steps.get(0, 0) > 0 for number in (1, 2, 3))


class Shadowing(VerifiedOnly):
    """Decodes plainly with a shadow draft of three tokens in each pause, and keeps what it is told of that."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def choose(self, position: int, limit: int, lookup: Any = None) -> Choice:
        return Choice(0)

    def park(self, position: int) -> Pause:
        return Pause(20, 3)

    def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float) -> None:
        pass

    def asked(self, position: int, count: int, draft: Draft, elapsed_s: float) -> None:
        self.events.append("under way" if draft.under_way else draft.came_s if draft.came else "given up")

    def shadowed(self, drafted: int, accepted: int) -> bool:
        self.events.append((drafted, accepted))
        return False


@pytest.mark.parametrize(("answers", "events"), [(True, [0.015, (3, 3)]), (False, ["given up"])])
def test_a_policy_is_told_when_a_late_shadow_comes_or_is_given_up(answers: bool, events: list[Any]) -> None:
    policy = Shadowing()
    speed(20, policy, wait_ms=15.0, answers=lambda _: answers)
    assert policy.events == ["under way", *events]


@pytest.mark.parametrize("tokens", [500, 5000])
def test_one_too_far_away_changes_little_for_one_that_is_here(tokens: int) -> None:
    useless = World(lambda depth, _: 1.0 + 0.1 * depth, lambda _, __: 0.5, lambda _, __: False, 7)
    sources: dict[str, list[str]] = {"": [], "far": []}

    def drafted(far: str) -> int:
        class Noting(ControlledDepth):
            def choose(self, *args: Any) -> Any:
                choice = super().choose(*args)
                sources[far].extend([choice.source] * (choice.count > 0))
                return choice

        policy = Noting({"here": 7, **({far: 7} if far else {})})
        policy.begin(lambda name: 90.0 if name == "far" else None)
        return sum(depth > 0 for depth in replay(policy, useless, tokens).depths)

    alone, beside = drafted(""), drafted("far")
    assert beside - alone <= sources["far"].count("far") <= 2 * (tokens // 512)
    assert (tokens < 512) == (not sources["far"].count("far"))


def test_a_slow_first_verification_does_not_make_a_near_drafter_a_far_one() -> None:
    class Warming(TableSequence):
        verified = 0

        def forward_block(self, bonus: int, draft: Draft) -> Forward:
            Warming.verified += 1
            self.clock.spend(40.0 if Warming.verified == 2 else 0.0)
            return super().forward_block(bonus, draft)

    plain_ms = plainly_ms(2048)
    near_ms = decoded_ms(
        lambda clock: RemoteDrafter(clock, 45.0, answers=lambda _: True), ControlledDepth(7), 2048, kind=Warming
    )
    assert plain_ms / near_ms >= 1.2


def test_a_link_that_gets_better_is_found() -> None:
    drafters: list[RemoteDrafter] = []

    def make(clock: VirtualClock) -> Drafter:
        drafters.append(RemoteDrafter(clock, wait_ms=100.0, answers=lambda _: True))
        return drafters[0]

    class Better(ControlledDepth):
        def record(self, position: int, drafted: int, outcome: Decision, elapsed_s: float) -> None:
            drafters[0].wait_ms = 100.0 if position < 600 else 5.0
            super().record(position, drafted, outcome, elapsed_s)

    plain_ms = plainly_ms(4096)
    assert plain_ms / decoded_ms(make, Better(7), 4096) >= 1.5


@pytest.mark.parametrize(("wait_ms", "least"), [(5.0, 3.0), (25.0, 1.9), (50.0, 1.2)])
def test_what_is_left_of_a_late_draft_is_worth_verifying(wait_ms: float, least: float) -> None:
    for depth in (ControlledDepth(7), GoingOn(7)):
        assert speed(1024, depth, wait_ms=wait_ms, answers=lambda _: True)[0] >= least


def test_waiting_is_chosen_where_it_was_measured_to_be_faster() -> None:
    # Two of three tokens are right: a row of a draft that waited is worth more than the plain token it costs.
    by_choice, forced = (
        speed(1024, depth, wait_ms=3.0, answers=lambda _: True, right=lambda position: position % 6 != 0)[0]
        for depth in (None, GoingOn(7))
    )
    assert by_choice > 1.1 * forced


def test_a_policy_that_waits_drafts_the_same_however_long_it_takes() -> None:
    drafters = [speed(256, FixedDepth(3), wait_ms=wait, answers=lambda _: True)[1] for wait in (0.0, 80.0)]
    assert drafters[0].positions == drafters[1].positions


@pytest.mark.parametrize("wait_ms", [50.0, 150.0])
def test_one_that_falls_silent_is_given_up_within_a_few_asks(wait_ms: float) -> None:
    speedup, drafter = speed(4096, wait_ms=wait_ms, answers=lambda position: position < 600)
    _, good = speed(600, wait_ms=wait_ms, answers=lambda _: True)
    late = [position for position in drafter.positions if position >= 600]
    # Shadows wait for nothing; of asks that are waited for, the account allows few.
    assert speedup >= 0.95
    assert len(late) < 40
    assert len(good.positions) > 0


def test_one_that_is_worth_its_wait_is_still_used() -> None:
    assert speed(1024, wait_ms=20.0, answers=lambda _: True)[0] >= 2.0
    assert speed(1024, wait_ms=20.0, answers=lambda position: position % 4 != 0)[0] >= 1.5


def test_one_that_begins_to_answer_is_found() -> None:
    speedup, _ = speed(4096, wait_ms=20.0, answers=lambda position: position > 512)
    assert speedup >= 1.3


def test_skips_that_cost_nothing_do_not_end_drafting() -> None:
    free, drafter = speed(1024, wait_ms=0.0, answers=lambda position: position % 4 != 0)
    assert free >= 5.0
    assert any(position % 4 == 0 for position in drafter.positions)


def test_a_policy_that_waits_pays_for_every_wait() -> None:
    assert speed(256, FixedDepth(3), wait_ms=150.0)[0] < 0.1
