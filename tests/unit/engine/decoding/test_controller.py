"""The controller on replayed costs: what drafting may cost at worst, and how near it comes to the best fixed depth."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from engine.decoding.controller import Acceptance, ControlledDepth, Costs
from engine.decoding.gates import CommitGate, EntropyGate
from engine.decoding.replay import World, best_fixed, replay
from engine.types import Outcome


def right_with(chance: Callable[[int], float], seed: int = 0) -> Callable[[int, int], bool]:
    return lambda position, offset: random.Random(f"{seed}/{position}/{offset}").random() < chance(position)


def cost_of(
    block: float, row: float, draft: float, growth: float = 0.0, noise: float = 0.0
) -> Callable[[int, int], float]:
    """Plain steps cost 1 ms plus growth per position; a drafted one ``draft`` plus ``block + row * depth`` of that."""

    def cost(depth: int, position: int) -> float:
        plain = 1.0 + growth * position
        factor = random.Random(f"{depth}/{position}").lognormvariate(0, noise) if noise else 1.0
        return 1e-3 * factor * (plain if depth == 0 else draft + plain * (block + row * depth))

    return cost


USELESS = {
    "cheap": World(cost_of(1.2, 0.15, 0.4), right_with(lambda _: 0.0), 7),
    "dear": World(cost_of(2.5, 0.4, 0.5), right_with(lambda _: 0.0), 7),
    "very dear": World(cost_of(6.0, 0.6, 0.5), right_with(lambda _: 0.0), 7),
    "sometimes right": World(cost_of(1.2, 0.15, 0.4), right_with(lambda _: 0.3), 7),
    "noisy clock": World(cost_of(1.2, 0.15, 0.4, noise=0.3), right_with(lambda _: 0.0), 7),
    "growing context": World(cost_of(1.5, 0.3, 0.4, growth=1 / 500), right_with(lambda _: 0.0), 7),
    "turns useless": World(cost_of(1.05, 0.05, 0.3), right_with(lambda place: 0.85 if place < 256 else 0.0), 7),
    "comes and goes": World(cost_of(1.05, 0.05, 0.3), right_with(lambda place: 0.85 * ((place // 64) % 2)), 7),
}


@pytest.mark.parametrize("name", USELESS)
@pytest.mark.parametrize("tokens", [1024, 4096])
def test_a_cold_controller_keeps_98_percent_of_plain_speed_in_the_worst_worlds(name: str, tokens: int) -> None:
    assert replay(ControlledDepth(7), USELESS[name], tokens).ratio >= 0.98


GOOD = {
    "fair": World(cost_of(1.2, 0.1, 0.3), right_with(lambda _: 0.6), 7),
    "good": World(cost_of(1.05, 0.05, 0.3), right_with(lambda _: 0.8), 7),
    "long blocks": World(cost_of(1.05, 0.05, 0.3), right_with(lambda _: 0.95), 15),
    "noisy clock": World(cost_of(1.05, 0.05, 0.3, noise=0.2), right_with(lambda _: 0.8), 7),
    "turns good": World(cost_of(1.05, 0.05, 0.3), right_with(lambda place: 0.85 if place > 512 else 0.0), 7),
    "growing context": World(cost_of(1.1, 0.1, 0.3, growth=1 / 1000), right_with(lambda _: 0.7), 7),
}


@pytest.mark.parametrize("name", GOOD)
def test_regret_against_the_best_fixed_depth_is_bounded(name: str) -> None:
    world = GOOD[name]
    _, best = best_fixed(world, 4096)
    assert best > 1.1
    assert replay(ControlledDepth(world.longest), world, 4096).ratio >= 0.9 * best


def test_a_useless_drafter_is_asked_less_and_less() -> None:
    depths = replay(ControlledDepth(7), USELESS["cheap"], 4096).depths
    drafted = [index for index, depth in enumerate(depths) if depth]
    assert 0 < len(drafted) < 60
    assert sum(index < 1024 for index in drafted) > sum(1024 <= index < 2048 for index in drafted)


def test_state_kept_across_requests_spares_the_next_one_the_exploration() -> None:
    policy, world = ControlledDepth(7), USELESS["dear"]
    cold = replay(policy, world, 256).ratio
    assert replay(policy, world, 256).ratio > cold


def test_a_limit_of_nothing_drafts_nothing() -> None:
    policy = ControlledDepth(7)
    assert policy.choose(0, 0) == 0
    assert ControlledDepth(0).choose(0, 5) == 0


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
    costs.learn(3, 1.0)
    costs.learn(3, 100.0)
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
    assert gate.choose(0, 10) == 4
    gate.record(0, 4, Outcome((1,), 0, min_entropy_nats=2.0), 1e-3)
    assert gate.choose(1, 10) == 0
    assert gate.park(1) == 1
    gate.record(1, 0, Outcome((1,), 0, min_entropy_nats=0.1), 1e-3)
    assert gate.choose(2, 3) == 3
    gate.record(2, 3, Outcome((1,), 0), 1e-3)
    assert gate.choose(2, 3) == 3
