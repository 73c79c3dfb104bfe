"""Stop rules on token ids."""

from __future__ import annotations

from engine.stopping import Stopping, cut_text
from engine.types import StopReason


def letters(ids: list[int]) -> str:
    return "".join(chr(96 + token) for token in ids)


def test_a_stop_id_inside_a_run_is_emitted_and_nothing_after_it() -> None:
    stopping = Stopping(budget_tokens=10, stop_ids=frozenset({3}))
    assert stopping.cut((1, 2)) == ((1, 2), None)
    assert stopping.cut((4, 3, 5)) == ((4, 3), StopReason.EOS)
    assert stopping.emitted == [1, 2, 4, 3]


def test_the_budget_cuts_a_run() -> None:
    stopping = Stopping(budget_tokens=3)
    assert stopping.cut((1, 2)) == ((1, 2), None)
    assert stopping.remaining_tokens == 1
    assert stopping.cut((1, 2)) == ((1,), StopReason.BUDGET)


def test_a_stop_id_that_is_also_the_last_of_the_budget_is_an_eos() -> None:
    assert Stopping(budget_tokens=1, stop_ids=frozenset({3})).cut((3, 4)) == ((3,), StopReason.EOS)


def test_a_stop_string_may_span_steps_and_ends_with_the_token_that_completes_it() -> None:
    stopping = Stopping(budget_tokens=20, stop_strings=("cab",), decode=letters)
    assert stopping.cut((2, 3, 1)) == ((2, 3, 1), None)
    assert stopping.cut((2, 5)) == ((2,), StopReason.STOP_STRING)


def test_a_stop_string_is_looked_for_in_the_answer_alone() -> None:
    stopping = Stopping(budget_tokens=20, stop_strings=("cab",), decode=letters, answers=lambda token: token < 20)
    assert stopping.cut((3, 21, 1, 22)) == ((3, 21, 1, 22), None)
    assert stopping.cut((23, 2, 5)) == ((23, 2), StopReason.STOP_STRING)


def test_an_empty_run_goes_on() -> None:
    assert Stopping(budget_tokens=1).cut(()) == ((), None)


def test_a_loop_guard_stops_without_editing_what_was_emitted() -> None:
    stopping = Stopping(budget_tokens=20, loop_guard=lambda emitted: emitted[-3:] == [1, 1, 1])
    assert stopping.cut((2, 1, 1, 1, 1)) == ((2, 1, 1, 1), StopReason.LOOP_GUARD)


def test_text_is_cut_at_the_earliest_stop_string() -> None:
    assert cut_text("a\n\nb###c", ("###", "\n\n")) == "a"
    assert cut_text("abc", ("x",)) == "abc"
