from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.support.pairwise import matrix, pairwise, star


def pairs_of(cases):
    return {(first, second) for case in cases for first, second in combinations(enumerate(case), 2)}


@pytest.mark.parametrize("sizes", [(3,), (2, 2, 2), (4, 2, 4), (2, 3, 5, 3), (3, 3, 3, 3, 3)])
def test_every_two_values_of_different_factors_meet(sizes: tuple[int, ...]) -> None:
    chosen = pairwise(*sizes)
    whole = list(product(*map(range, sizes)))
    assert pairs_of(chosen) == pairs_of(whole)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(whole)


def test_it_takes_about_as_many_cases_as_the_two_largest_factors_have_pairs() -> None:
    assert len(pairwise(4, 2, 4)) == 16
    assert len(pairwise(2, 3, 5, 3)) <= 18
    assert pairwise(2, 3, 5, 3) == pairwise(2, 3, 5, 3)


def test_a_matrix_holds_the_full_product_and_calls_the_rest_slow() -> None:
    made = matrix(["a", "b"], {"none": 0, "some": 3}, (True, False))
    assert len(made) == 8
    assert [case.values for case in made] == list(product(["a", "b"], [0, 3], [True, False]))
    assert made[3].id == "a-some-False"
    quick = [case.values for case in made if not case.marks]
    assert len(quick) == 4
    assert [mark.name for case in made for mark in case.marks] == ["slow"] * 4


def test_a_star_varies_one_factor_at_a_time_and_calls_the_rest_slow() -> None:
    made = star(("b", "some"), ["a", "b", "c"], {"none": 0, "some": 3})
    assert [case.values for case in made] == list(product(["a", "b", "c"], [0, 3]))
    assert [case.id for case in made if not case.marks] == ["a-some", "b-none", "b-some", "c-some"]
    assert [mark.name for case in made for mark in case.marks] == ["slow"] * 2
