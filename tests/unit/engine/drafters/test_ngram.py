"""Prompt lookup against a plain search of the whole history."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.ngram import NgramModel
from engine.types import Draft

tokens = st.lists(st.integers(0, 3), min_size=0, max_size=60)


def plain_search(history: list[int], least: int, most: int) -> tuple[int, int] | None:
    """Return length and end of the longest, most recent earlier occurrence of the end of ``history``."""
    best = None
    for end in range(1, len(history)):
        length = 0
        while length < min(most, end) and history[end - 1 - length] == history[-1 - length]:
            length += 1
        if length >= least and (best is None or length >= best[0]):
            best = (length, end)
    return best


@given(context=tokens, bonus=st.integers(0, 3), count=st.integers(1, 9), split=st.integers(0, 60))
def test_it_proposes_what_followed_the_longest_most_recent_match(context, bonus, count, split) -> None:
    model = NgramModel(min_tokens=2, max_tokens=5, max_candidates=1000)
    drafter = model.open()
    drafter.observe(0, tuple(context[:split]), None)
    drafter.observe(len(context[:split]), tuple(context[split:]), None)
    draft = drafter.ask(bonus, len(context), count)
    history = [*context, bonus]
    match = plain_search(history, 2, 5)
    if match is None:
        assert draft == Draft(skipped="no match")
        return
    expected = list(history)
    for offset in range(count):
        expected.append(expected[match[1] + offset])
    assert list(draft.tokens) == expected[len(history) :]
    assert draft.count == count


def test_without_history_there_is_no_draft_and_a_reason() -> None:
    drafter = NgramModel().open()
    assert drafter.ask(5, 0, 4).skipped == "no match"
    drafter.observe(0, (1, 2, 3), None)
    draft = drafter.ask(9, 3, 4)
    assert (draft.count, draft.skipped) == (0, "no match")


def test_periodic_text_is_continued_by_its_period() -> None:
    drafter = NgramModel().open()
    drafter.observe(0, (7, 1, 2, 3, 1, 2), None)
    assert drafter.ask(3, 6, 7).tokens == (1, 2, 3, 1, 2, 3, 1)


def test_the_search_is_bounded_to_the_newest_candidates() -> None:
    drafter = NgramModel(max_tokens=8, max_candidates=2).open()
    drafter.observe(0, (9, 8, 1, 2, 5, 1, 2, 6, 1, 2, 7), None)
    drafter.observe(11, (9, 8, 1), None)
    # The four-token match at the start is older than the two candidates that are kept.
    assert drafter.ask(2, 14, 1).tokens == (7,)
    assert all(len(ends) <= 2 for ends in drafter._ends.values())


def test_it_runs_no_network_and_holds_nothing_on_the_device() -> None:
    drafter = NgramModel().open()
    assert (drafter.forwards, drafter.measured_bytes(), NgramModel().capture) == (0, 0, ())


def test_of_a_long_history_only_the_newest_tokens_are_indexed() -> None:
    drafter = NgramModel(max_indexed=100).open()
    text = tuple(index * 7919 % 1009 for index in range(1000))
    drafter.observe(0, (1, 2, 3, *text), None)
    assert drafter.indexed == 100
    assert drafter.ask(2, 1003, 1).skipped == "no match"
    newest = text[-50:]
    assert drafter.ask(newest[1], 1003, 1).skipped == "no match"
    drafter.observe(1003, (newest[0],), None)
    assert drafter.ask(newest[1], 1004, 3).tokens == newest[2:5]
    assert drafter.rewind(950) == 950
    assert drafter.indexed == 100 - 54


def test_the_index_counts_what_it_holds_in_the_memory_of_the_host() -> None:
    text = tuple(1000 + index * 7919 % 100_003 for index in range(20_000))
    tracemalloc.start()
    drafter = NgramModel().open()
    drafter.observe(0, tuple(int(str(token)) for token in text), None)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 0.8 * taken < drafter.host_bytes() < 1.25 * taken
