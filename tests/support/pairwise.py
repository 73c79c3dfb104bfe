"""Few cases in which every two values of different factors meet; every other combination is a slow test.

Faults that need three values at once are left to the slow tier (Kuhn, Wallace, Gallo: Software Fault Interactions and
Implications for Software Testing, IEEE TSE 2004).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Factor = Sequence[Any] | Mapping[str, Any]


def pairwise(*sizes: int) -> list[tuple[int, ...]]:
    """Return cases, an index into each factor, in which every two indices of different factors occur together.

    Greedy and without chance: each case taken is the first of those that bring most new pairs.

    Args:
        sizes: how many values each factor has.
    """
    cases = list(product(*map(range, sizes)))
    missing = {pair for case in cases for pair in _pairs(case)}
    chosen = []
    while missing:
        best = max(cases, key=lambda case: len(missing & _pairs(case)))
        missing -= _pairs(best)
        chosen.append(best)
    return chosen


def _pairs(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(combinations(enumerate(case), 2))


def matrix(*factors: Factor) -> list[Any]:
    """Return every combination as a parameter set; those that no pair needs are slow.

    Args:
        factors: values, or values by the name that a test's id shows.
    """
    return _marked(factors, lambda named: set(pairwise(*map(len, named))))


def star(hub: Sequence[str], *factors: Factor) -> list[Any]:
    """Return every combination as a parameter set; those that differ from a hub in two factors or more are slow.

    Args:
        hub: the names of one combination, where most faults have shown.
        factors: as for `matrix`.
    """

    def near(named: list[list[tuple[str, Any]]]) -> set[tuple[int, ...]]:
        middle = [[name for name, _ in values].index(hub_name) for values, hub_name in zip(named, hub, strict=True)]
        cases = product(*(range(len(values)) for values in named))
        return {case for case in cases if sum(index != other for index, other in zip(case, middle, strict=True)) <= 1}

    return _marked(factors, near)


def _marked(
    factors: Sequence[Factor], choose: Callable[[list[list[tuple[str, Any]]]], set[tuple[int, ...]]]
) -> list[Any]:
    named = [
        list(factor.items()) if isinstance(factor, Mapping) else [(str(v), v) for v in factor] for factor in factors
    ]
    quick = choose(named)
    return [
        pytest.param(
            *(named[place][index][1] for place, index in enumerate(case)),
            id="-".join(named[place][index][0] for place, index in enumerate(case)),
            marks=[] if case in quick else [pytest.mark.slow],
        )
        for case in product(*(range(len(values)) for values in named))
    ]
