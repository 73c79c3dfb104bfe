"""Greedy acceptance as a function of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.types import Decision
from engine.verification import greedy

ids = st.integers(0, 9)


@given(predicted=st.lists(ids, min_size=1, max_size=9), data=st.data())
def test_committed_tokens_are_the_predictions_up_to_the_first_the_draft_missed(predicted, data) -> None:
    draft = data.draw(st.lists(ids, min_size=len(predicted) - 1, max_size=len(predicted) - 1))
    outcome = greedy.decide(draft, predicted, [True] * len(predicted), 10)
    assert outcome.tokens == tuple(predicted[: outcome.accepted + 1])
    assert list(outcome.tokens[:-1]) == draft[: outcome.accepted]
    if outcome.accepted < len(draft):
        assert draft[outcome.accepted] != predicted[outcome.accepted]
    assert outcome.guard is None


def test_without_a_draft_the_prediction_is_committed() -> None:
    assert greedy.decide((), (7,), (True,), 10) == Decision(tokens=(7,), accepted=0)


def test_a_bad_row_costs_the_tail_of_its_block_and_says_so() -> None:
    outcome = greedy.decide((1, 2, 3), (1, 2, 3, 4), (True, True, False, True), 10)
    assert outcome.tokens == (1, 2)
    assert outcome.accepted == 1
    assert outcome.guard == "non-finite logits"


def test_a_bad_row_behind_a_rejection_is_nobodys_business() -> None:
    outcome = greedy.decide((9, 2, 3), (1, 2, 3, 4), (True, True, False, True), 10)
    assert outcome == Decision(tokens=(1,), accepted=0)


def test_a_bad_first_row_commits_nothing() -> None:
    outcome = greedy.decide((1,), (1, 2), (False, True), 10)
    assert outcome.tokens == ()
    assert outcome.guard == "non-finite logits"


def test_an_id_outside_the_vocabulary_is_never_committed() -> None:
    outcome = greedy.decide((1, 2), (1, 10, 3), (True, True, True), 10)
    assert outcome.tokens == (1,)
    assert outcome.guard == "predicted id 10 outside the vocabulary"
    assert greedy.decide((), (-1,), (True,), 10).tokens == ()
