"""The controller on replayed costs: what drafting may cost at worst, and how near it comes to the best fixed depth."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest

from engine.decoding.arms import Ahead, Bucket
from engine.decoding.awaiting import LARGEST_SLOWING, BesideDraft, Latency
from engine.decoding.controller import SHADOW_COST_PRIOR, SHADOW_PAUSE_STEPS, ControlledDepth
from engine.decoding.estimates import EARLY_STEPS, Acceptance, Costs
from engine.types import Decision, Pause
from tests.fakes.gates import CommitGate, EntropyGate
from tests.fakes.replay import World, best_fixed, replay


@cache
def uniform(seed: int, position: int, offset: int) -> float:
    return random.Random(f"{seed}/{position}/{offset}").random()


@cache
def lognormal(depth: int, position: int, noise: float) -> float:
    return random.Random(f"{depth}/{position}").lognormvariate(0, noise)


def right_with(chance: Callable[[int], float], seed: int = 0) -> Callable[[int, int], bool]:
    return lambda position, offset: uniform(seed, position, offset) < chance(position)


def world(
    costs: tuple[float, float, float], right: Callable[[int, int], bool], longest: int = 7, **more: float
) -> World:
    """Plain steps cost 1 ms plus growth per position; a drafted one ``draft`` plus ``block + row * depth`` of that."""
    block, row, draft = costs
    growth, noise = more.get("growth", 0.0), more.get("noise", 0.0)

    def factor(depth: int, position: int) -> float:
        return 1e-3 * (lognormal(depth, position, noise) if noise else 1.0)

    def cost(depth: int, position: int) -> float:
        plain = 1.0 + growth * position
        return factor(depth, position) * (plain if depth == 0 else draft + plain * (block + row * depth))

    return World(cost, lambda depth, position: factor(depth, position) * draft, right, longest)


def test_of_plain_steps_that_are_queued_ahead_neither_the_first_nor_the_last_is_timed() -> None:
    policy, position = ControlledDepth({}), 0

    def pause(*times_s: float) -> None:
        nonlocal position
        assert policy.choose(position, 100).count == 0
        assert policy.park(position).tokens > 1
        for time_s in times_s:
            policy.record(position, 0, Decision((1,), 0), time_s)
            position += 1

    pause(1.0, 2.0, 1.0, 1.0, 1.0, 0.1)
    pause(2.0, 1.0, 1.0, 1.0, 0.1)
    (bucket,) = policy.buckets.values()
    assert (bucket.plain_s, bucket.plain.timed_steps[0]) == (1.0, 7)
    for _ in range(20):
        pause(2.0, 0.1)
    assert (bucket.plain_s, bucket.plain.timed_steps[0]) == (1.0, 7)


@pytest.mark.parametrize("queued", [False, True])
def test_a_shadow_draft_costs_what_the_pause_took_longer_by(queued: bool) -> None:
    """Where a full queue is waited for, the first step of a pause takes two forwards and the last none."""
    ahead, bucket = Ahead(), Bucket()
    steps = (2.5, 1.0, 1.0, 0.0) if queued else (1.5, 1.0, 1.0, 1.0)
    for number, elapsed_s in enumerate(steps):
        ahead.take(bucket, elapsed_s, alone=number > 0, shadow=number == 0)
    assert ahead.shadow_cost(1.0) == pytest.approx(0.5)
    assert bucket.plain_s == 1.0


@pytest.mark.parametrize("queued", [False, True])
def test_plain_steps_beside_a_draft_are_slowed_by_what_all_of_them_took(queued: bool) -> None:
    latency = Latency()
    for _ in range(40):
        beside = BesideDraft(latency)
        lost_s = sum(beside.take(step_s, 1.0) for step_s in ((2.4, 1.2, 0.0) if queued else (1.2, 1.2, 1.2)))
        beside.end()
        assert lost_s == pytest.approx(0.6)
    assert latency.slows == pytest.approx(1.2, abs=0.01)


def test_a_step_that_stalls_beside_a_draft_is_booked_as_a_disturbance() -> None:
    beside = BesideDraft(Latency())
    assert sum(beside.take(100.0 if number == 30 else 1.0, 1.0) for number in range(64)) <= 2 * LARGEST_SLOWING


def test_the_end_of_an_answer_says_nothing_of_what_its_last_pause_lost() -> None:
    policy = ControlledDepth(7)
    policy.begin()
    for answer in range(30):
        policy.choose(answer, 100)
        pause = policy.park(answer)
        for step in range(pause.tokens - 1):  # ends before the last
            policy.record(answer + step, 0, Decision((1,), 0), 2.0 if step == 0 else 1.0)
        policy.begin()
    assert policy._shadow_cost == SHADOW_COST_PRIOR


USELESS = {
    "cheap": world((1.2, 0.15, 0.4), right_with(lambda _: 0.0)),
    "dear": world((2.5, 0.4, 0.5), right_with(lambda _: 0.0)),
    "very dear": world((6.0, 0.6, 0.5), right_with(lambda _: 0.0)),
    "sometimes right": world((1.2, 0.15, 0.4), right_with(lambda _: 0.3)),
    "noisy clock": world((1.2, 0.15, 0.4), right_with(lambda _: 0.0), noise=0.3),
    "growing context": world((1.5, 0.3, 0.4), right_with(lambda _: 0.0), growth=1 / 500),
    "right but dear": world((4.0, 0.6, 0.5), right_with(lambda _: 0.9)),
    "turns useless": world((1.05, 0.05, 0.3), right_with(lambda place: 0.85 if place < 256 else 0.0)),
    "comes and goes": world((1.05, 0.05, 0.3), right_with(lambda place: 0.85 * ((place // 64) % 2))),
}


@pytest.mark.parametrize("name", USELESS)
@pytest.mark.parametrize(("tokens", "share"), [(512, 0.97), (1024, 0.98), (4096, 0.98)])
def test_a_cold_controller_keeps_nearly_all_plain_speed_in_the_worst_worlds(
    name: str, tokens: int, share: float
) -> None:
    assert replay(ControlledDepth(7), USELESS[name], tokens).ratio >= share


GOOD = {
    "fair": world((1.2, 0.1, 0.3), right_with(lambda _: 0.6)),
    "good": world((1.05, 0.05, 0.3), right_with(lambda _: 0.8)),
    "long blocks": world((1.05, 0.05, 0.3), right_with(lambda _: 0.95), 15),
    "one token": world((1.05, 0.05, 0.3), right_with(lambda _: 0.9), 1),
    "noisy clock": world((1.05, 0.05, 0.3), right_with(lambda _: 0.8), noise=0.2),
    "turns good": world((1.05, 0.05, 0.3), right_with(lambda place: 0.85 if place > 512 else 0.0)),
    "growing context": world((1.1, 0.1, 0.3), right_with(lambda _: 0.7), growth=1 / 1000),
}


def test_a_bad_moment_at_the_first_drafts_is_no_verdict() -> None:
    def cost_s(depth: int, position: int) -> float:
        return GOOD["good"].cost_s(depth, position) * (5.0 if depth and position < 12 else 1.0)

    disturbed = World(cost_s, GOOD["good"].draft_s, GOOD["good"].right, 7)
    assert replay(ControlledDepth(7), disturbed, 1024).ratio >= 0.85 * best_fixed(disturbed, 1024)[1]


@pytest.mark.parametrize("reading_s", [0.0, -1e-3])
def test_a_clock_that_does_not_move_says_nothing_of_what_steps_cost(reading_s: float) -> None:
    def cost_s(depth: int, position: int) -> float:
        return reading_s if position % 50 == 1 else GOOD["good"].cost_s(depth, position)

    depths = replay(ControlledDepth(7), World(cost_s, GOOD["good"].draft_s, GOOD["good"].right, 7), 1024).depths
    assert sum(depth > 0 for depth in depths) > len(depths) / 2


@pytest.mark.parametrize("name", GOOD)
def test_regret_against_the_best_fixed_depth_is_bounded(name: str) -> None:
    good = GOOD[name]
    _, best = best_fixed(good, 4096)
    assert best > 1.1
    assert replay(ControlledDepth(good.longest), good, 4096).ratio >= 0.9 * best


def shadows(policy: ControlledDepth, played: World, tokens: int) -> list[int]:
    """Return the positions at which a replay proposed a shadow draft."""
    positions: list[int] = []

    def draft_s(count: int, position: int) -> float:
        positions.append(position)
        return played.draft_s(count, position)

    replay(policy, World(played.cost_s, draft_s, played.right, played.longest), tokens)
    return positions


def test_a_useless_drafter_is_asked_less_and_less_and_never_verified() -> None:
    assert set(replay(ControlledDepth(7), USELESS["cheap"], 4096).depths) == {0}
    positions = shadows(ControlledDepth(7), USELESS["cheap"], 4096)
    gaps = [later - earlier for earlier, later in pairwise(positions)]
    assert 0 == positions[0] < gaps[0] < 10
    assert gaps[1:7] == [4, 8, 16, 32, 64, SHADOW_PAUSE_STEPS]
    assert min(gaps[6:]) == SHADOW_PAUSE_STEPS
    assert len(positions) < 60


def test_a_drafter_that_turns_good_is_found_within_a_pause_of_shadows() -> None:
    depths = replay(ControlledDepth(7), GOOD["turns good"], 4096).depths
    assert 512 < next(index for index, depth in enumerate(depths) if depth) < 512 + 3 * SHADOW_PAUSE_STEPS


def test_where_shadows_are_never_compared_drafts_are_verified_instead() -> None:
    class Silent(ControlledDepth):
        def shadowed(self, drafted: int, accepted: int) -> bool:
            return False

    depths = replay(Silent(7), GOOD["good"], 1024).depths
    assert sum(depth > 0 for depth in depths) > len(depths) / 2
    assert replay(Silent(7), USELESS["cheap"], 1024).ratio >= 0.98


def test_requests_that_end_before_a_shadow_is_compared_do_not_end_shadows() -> None:
    policy, cheap = ControlledDepth(7), USELESS["cheap"]
    for _ in range(5):
        assert policy.park(0).shadow > 0
        policy.record(0, 0, Decision((1,), 0), 1e-3)
    assert set(replay(policy, cheap, 512).depths) == {0}
    assert shadows(policy, cheap, 512)


def test_state_kept_across_requests_spares_the_next_one_the_exploration() -> None:
    policy, dear = ControlledDepth(7), USELESS["dear"]
    cold = replay(policy, dear, 256).ratio
    assert replay(policy, dear, 256).ratio > cold


def test_a_limit_of_nothing_drafts_nothing() -> None:
    policy = ControlledDepth(7)
    assert policy.choose(0, 0).count == 0
    assert ControlledDepth(0).choose(0, 5).count == 0


def test_acceptance_starts_at_the_prior_and_follows_what_happens() -> None:
    acceptance = Acceptance.prior(3)
    assert acceptance.committed(0) == 1.0
    for _ in range(200):
        acceptance.learn(drafted=3, accepted=1)
    assert acceptance.rates[0] > 0.99
    assert acceptance.rates[1] < 0.01
    assert acceptance.reached == [200, 200, 0]
    assert acceptance.committed(3) == pytest.approx(2.0, abs=0.05)


def test_one_outlier_moves_a_cost_by_a_quarter_at_most() -> None:
    costs = Costs()
    for _ in range(EARLY_STEPS):
        costs.learn(3, 1.0)
    costs.learn(3, 100.0)
    assert costs.seconds[3] == pytest.approx(1.0 + 0.3 * 0.25)
    costs.learn(3, 0.01)
    assert costs.seconds[3] > 0.9


def test_of_the_first_times_the_shortest_counts() -> None:
    costs = Costs()
    for elapsed_s in (5.0, 1.0, 1.5):
        costs.learn(3, elapsed_s)
    assert costs.seconds[3] == pytest.approx(1.0 + 0.3 * 0.25)


def test_an_unmeasured_depth_lies_on_the_line_through_its_neighbours() -> None:
    costs = Costs({0: 1.0, 2: 2.0, 4: 3.0})
    assert costs.of(3) == pytest.approx(2.5)
    assert costs.of(6) == pytest.approx(4.0)
    assert costs.of(1) == pytest.approx(1.5)
    assert Costs({0: 1.0}).of(2) is None


def test_the_commit_gate_closes_for_ever_on_a_useless_drafter_and_stays_open_on_a_good_one() -> None:
    useless = replay(CommitGate(3), USELESS["cheap"], 600).depths
    assert 3 in useless
    assert set(useless[60:]) == {0}
    good = replay(CommitGate(3), GOOD["good"], 600).depths
    assert set(good[10:-3]) == {3}


def test_the_entropy_gate_drafts_while_the_target_is_sure() -> None:
    gate = EntropyGate(4, limit_nats=0.5)
    assert gate.choose(0, 10).count == 4
    gate.record(0, 4, Decision((1,), 0, min_entropy_nats=2.0), 1e-3)
    assert gate.choose(1, 10).count == 0
    assert gate.park(1) == Pause(1)
    gate.record(1, 0, Decision((1,), 0, min_entropy_nats=0.1), 1e-3)
    assert gate.choose(2, 3).count == 3
    gate.record(2, 3, Decision((1,), 0), 1e-3)
    assert gate.choose(2, 3).count == 3
