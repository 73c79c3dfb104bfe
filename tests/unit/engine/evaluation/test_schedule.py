"""The order of arms is balanced and belongs to the request."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import pytest

from engine.errors import UsageError
from engine.measurement.schedule import PROFILES, balanced_orders, every_order, shuffled

ARMS = PROFILES["claim"].arms


def test_every_order_occurs_equally_often() -> None:
    orders = balanced_orders(ARMS, 12, "digest", 0)
    assert Counter(orders) == dict.fromkeys(permutations(ARMS), 2)
    assert Counter(balanced_orders(ARMS[:2], 6, "digest", 0)) == dict.fromkeys(permutations(ARMS[:2]), 3)


@pytest.mark.parametrize("size", range(1, 9))
def test_each_arm_is_in_each_place_and_behind_each_other_arm_equally_often(size: int) -> None:
    orders = every_order(tuple("abcdefgh"[:size]))
    places = Counter(pair for order in orders for pair in enumerate(order))
    behind = Counter(pair for order in orders for pair in pairwise(order))
    assert (len(places), len(behind)) == (size * size, size * (size - 1))
    assert len({*places.values()}) == 1
    assert len({*behind.values()}) == min(size - 1, 1)


def test_the_order_is_the_requests_and_the_launchs() -> None:
    drawn = {tuple(balanced_orders(ARMS, 12, digest, launch)) for digest in "abcdefgh" for launch in range(5)}
    assert len(drawn) == 40
    assert balanced_orders(ARMS, 12, "a", 1) == balanced_orders(ARMS, 12, "a", 1)


def test_first_positions_are_not_biased_over_many_requests() -> None:
    first = Counter(balanced_orders(ARMS, 12, f"request {index}", 0)[0][0] for index in range(600))
    assert all(150 < count < 250 for count in first.values())


def test_an_unbalanced_count_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot balance 6 orders"):
        balanced_orders(ARMS, 10, "digest")


def test_shuffling_keeps_every_item() -> None:
    assert sorted(shuffled(range(50), "seed")) == list(range(50))
    assert shuffled(range(50), "seed") != list(range(50))


def test_the_claim_profile_is_the_design() -> None:
    claim = PROFILES["claim"]
    assert (claim.prompts_per_launch, claim.warmups, claim.max_new_tokens) == (12, 2, 256)
    assert (PROFILES["smoke"].prompts_per_launch, PROFILES["smoke"].max_new_tokens) == (6, 48)
