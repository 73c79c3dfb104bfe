"""A recurrent state goes back over any crops to what the rows that stayed leave behind, on numbers for arrays."""

from __future__ import annotations

import random

import pytest

from engine.backends.layers import crop_all
from engine.backends.recurrent import CROPPABLE_ROWS, RecurrentState
from engine.errors import CacheCropError


def folded(before: int, rows: tuple[int, ...]) -> int:
    for row in rows:
        before = (before * 31 + row) % 10_007
    return before


def replay(before: tuple[int, ...] | None, read: tuple[int, ...], rows: int) -> tuple[int, ...]:
    return (folded(before[0] if before else 0, read[:rows]),)


def append(state: RecurrentState, rows: tuple[int, ...]) -> None:
    before = state.state[0] if state.state else 0
    state.append((folded(before, rows),), rows, len(rows))


def new(appends: int | None) -> RecurrentState:
    return RecurrentState(replay, lambda array: 8, appends)


@pytest.mark.parametrize("appends", [1, None])
@pytest.mark.parametrize("seed", range(30))
def test_any_history_of_appends_and_crops_leaves_the_state_of_what_stayed(appends: int | None, seed: int) -> None:
    chooser, state, history = random.Random(seed), new(appends), []
    for _ in range(40):
        began = len(history)
        for _ in range(chooser.randint(1, 4) if appends is None else 1):
            began = len(history) if appends == 1 else began
            rows = tuple(chooser.randrange(100) for _ in range(chooser.randint(1, 9)))
            append(state, rows)
            history += rows
        history = history[: chooser.randint(began, len(history))]
        state.crop(len(history))
        assert state.length == len(history)
        assert (state.state or (0,))[0] == folded(0, tuple(history))


def test_a_prompt_is_never_cropped_into_and_keeps_nothing_to_go_back() -> None:
    state = new(None)
    append(state, tuple(range(CROPPABLE_ROWS + 1)))
    assert state.measured_bytes() == 8
    with pytest.raises(CacheCropError, match=f"to 5 positions; expected {CROPPABLE_ROWS + 1} <= length"):
        state.crop(5)


@pytest.mark.parametrize("length", [-1, 2, 9])
def test_a_state_that_is_gone_or_to_come_is_refused_and_nothing_moves(length: int) -> None:
    state = new(1)
    append(state, (1, 2, 3))
    append(state, (4, 5))
    with pytest.raises(CacheCropError, match="expected 3 <= length <= 5"):
        state.crop(length)
    assert state.state == (folded(0, (1, 2, 3, 4, 5)),)


def test_other_tokens_may_follow_where_a_sequence_ended_and_further_back_it_begins_anew() -> None:
    state = new(1)
    append(state, (1, 2, 3))
    append(state, (4, 5))
    state.crop(4)
    state.rewind(4)
    assert state.state == (folded(0, (1, 2, 3, 4)),)
    with pytest.raises(CacheCropError, match="to 3 positions; expected 4 <= length <= 4"):
        state.rewind(3)


def test_a_crop_that_a_later_layer_refuses_moves_none_before_it() -> None:
    first, later = new(None), new(1)
    for state in (first, later):
        append(state, (1, 2, 3))
        append(state, (4, 5))
    with pytest.raises(CacheCropError, match="to 1 positions; expected 3 <= length <= 5"):
        crop_all([first, later], 1)
    assert (first.length, later.length) == (5, 5)
    crop_all([first, later], 4)
    assert first.state == later.state == (folded(0, (1, 2, 3, 4)),)
