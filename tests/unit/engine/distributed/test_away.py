"""What stands for a drafter that is away, with the drafter's coming in the test's hand."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="messages of kakeya.v1")

from engine.distributed.away import MOST_KEPT, AwayModel
from engine.errors import CacheCropError, SessionError
from tests.support.waiting import until


class Came:
    """A drafter that keeps what it is shown."""

    def __init__(self, capture: tuple[int, ...]) -> None:
        self.capture, self.info, self.shown = capture, "it", list[Any]()

    def open(self) -> Any:
        return self

    def observe(self, start: int, tokens: tuple[int, ...], rows: Any) -> None:
        self.shown.append((start, tokens, rows))

    def ask(self, *_: Any) -> str:
        return "a draft"

    def rewind(self, length: int) -> int:
        return length


def away(expected: tuple[int, ...], arriving: Came) -> tuple[AwayModel, Any]:
    """Return a model whose drafter comes once it is let, and what lets it."""
    turn = threading.Semaphore(0)
    calls = []

    def find() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise SessionError("UNAVAILABLE", "not yet")
        return arriving

    model = AwayModel("there", "nobody", find, expected, sleep=lambda _: turn.acquire() and None)

    def let() -> None:
        turn.release(2)
        until(lambda: model.there is not None, why="it was not found")

    return model, let


@pytest.mark.parametrize(("capture", "rows"), [((), None), ((3,), [7])])
def test_one_that_comes_is_shown_all_that_was_committed(capture: tuple[int, ...], rows: Any) -> None:
    arriving = Came(capture)
    model, let = away((3,), arriving)
    drafter = model.open()
    drafter.observe(0, (5, 6), [1, 2])
    drafter.observe(2, (8,), [9])
    assert drafter.rewind(2) == 2
    drafter.observe(2, (7,), [7])
    assert drafter.ask(1, 3, 2).skipped == "the remote drafter is away: nobody"
    let()
    assert drafter.ask(1, 3, 2) == "a draft"
    assert [start for start, _, _ in arriving.shown] == [0, 2]
    assert arriving.shown[-1] == (2, (7,), rows)


@pytest.mark.parametrize(("expected", "tokens"), [((), 3), ((3,), MOST_KEPT + 1)])
def test_one_that_reads_rows_that_were_not_kept_drafts_for_the_next_sequence(
    expected: tuple[int, ...], tokens: int
) -> None:
    model, let = away(expected, Came((3,)))
    drafter = model.open()
    drafter.observe(0, (5,) * tokens, None)
    assert drafter.rewind(tokens) == tokens  # as long as it is away, a conversation goes on
    let()
    assert (
        drafter.ask(1, tokens, 2).skipped == "the remote drafter came too late for this answer, and drafts for the next"
    )
    with pytest.raises(CacheCropError):
        drafter.rewind(2)
    assert model.open() is model.there


def test_rows_that_are_kept_for_one_that_is_away_are_counted() -> None:
    model, let = away((3,), Came((3,)))
    drafter = model.open()
    drafter.observe(0, (5, 6), memoryview(bytes(16)).cast("d"))
    drafter.observe(2, (8,), memoryview(bytes(8)).cast("d"))
    assert drafter.measured_bytes() == 24
    drafter.rewind(2)
    assert drafter.measured_bytes() == 16
    let()


@pytest.mark.parametrize("expected", [(), (1,)])
def test_one_that_comes_once_the_target_keeps_other_rows_drafts_for_the_next_sequence(
    expected: tuple[int, ...],
) -> None:
    model, let = away(expected, Came((3,)))
    assert model.capture == expected  # the target opens its sequence, and then its drafter comes
    let()
    drafter = model.open()
    drafter.observe(0, (5, 6), [1, 2] if expected else None)
    assert drafter.ask(1, 2, 2).skipped == "the remote drafter came too late for this answer, and drafts for the next"
    assert model.capture == (3,)
    assert model.open() is model.there
