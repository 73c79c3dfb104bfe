from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator

import pytest

from engine.bench.turns import Arrivals, Decode, HeldDecode, Pulled, Pushed, take_turns


class WorkClock:
    """Moves when a decode works; a wait for the device takes what is still queued."""

    eager = False

    def __init__(self) -> None:
        self.ns = 0
        self.queued_ns = 0

    def now_ns(self) -> int:
        self.ns, self.queued_ns = self.ns + self.queued_ns, 0
        return self.ns

    def host_ns(self) -> int:
        return self.ns


def steps(clock: WorkClock, count: int, names: list[str], name: str = "") -> Generator[tuple[int, ...]]:
    """One token a step, each taking 10 ns on the device and read a step later."""
    for index in range(count):
        clock.now_ns()
        clock.queued_ns = 10
        names.append(name)
        yield (index,)


def pulled(clock: WorkClock, count: int, names: list[str], name: str = "") -> HeldDecode:
    return Pulled(steps(clock, count, names, name), clock)


def pushed(clock: WorkClock, count: int, names: list[str], name: str = "") -> HeldDecode:
    def decode(put: Callable[[tuple[int, ...]], None]) -> None:
        for tokens in steps(clock, count, names, name):
            put(tokens)

    return Pushed(decode, clock)


KINDS = pytest.mark.parametrize("kind", [pulled, pushed])


@KINDS
def test_a_decode_counts_its_own_turns_and_the_work_it_left_queued(kind: Callable[..., HeldDecode]) -> None:
    clock = WorkClock()
    decode = Decode(kind(clock, 6, []), clock)
    for tokens in (3, 5, 7):
        clock.ns += 1000  # another's turn
        assert decode.advance(tokens) == (tokens < 7)
    assert decode.tokens == [0, 1, 2, 3, 4, 5]
    assert decode.arrivals == Arrivals((1, 2, 3, 4, 5, 6), (0.0, 0.0, 1e-8, 2e-8, 3e-8, 4e-8))
    decode.close()


@KINDS
def test_turns_are_of_so_many_tokens_in_changing_order_until_the_longest_ends(kind: Callable[..., HeldDecode]) -> None:
    clock, names = WorkClock(), []
    decodes = [Decode(kind(clock, count, names, name), clock) for name, count in (("a", 33), ("b", 9), ("c", 33))]
    assert "".join(names) == "abc"
    take_turns(decodes, random.Random(3), slice_tokens=4)
    assert [len(decode.tokens) for decode in decodes] == [33, 9, 33]
    turns = [names[start : start + 4] for start in range(3, 3 + 6 * 4, 4)]
    assert all(len(set(turn)) == 1 for turn in turns)
    assert sorted(turn[0] for turn in turns) == [*"aabbcc"]
    rounds = {"".join(names[start : start + 8 : 4]) for start in range(27, len(names), 8)}
    assert rounds == {"ac", "ca"}


@KINDS
def test_a_decode_that_ends_on_a_turns_last_token_is_found_finished_in_the_next(
    kind: Callable[..., HeldDecode],
) -> None:
    clock = WorkClock()
    decode = Decode(kind(clock, 5, []), clock)
    assert decode.advance(5)
    spent = decode.arrivals
    assert not decode.advance(9)
    assert not decode.advance(13)
    assert decode.arrivals == spent
    decode.close()


def test_a_call_that_fails_raises_where_it_was_asked() -> None:
    def decode(put: Callable[[tuple[int, ...]], None]) -> None:
        put((1,))
        raise ValueError("no more")

    running = Pushed(decode, WorkClock())
    assert running.advance(1) == [(0, (1,))]
    with pytest.raises(ValueError, match="no more"):
        running.advance(2)
    assert running.advance(3) == []
    running.close()


@pytest.mark.parametrize("begun", [False, True])
def test_closing_ends_the_thread_of_a_call_that_is_held(begun: bool) -> None:
    before, cleaned = set(threading.enumerate()), []

    def decode(put: Callable[[tuple[int, ...]], None]) -> None:
        try:
            while True:
                put((1,))
        finally:
            cleaned.append(True)

    running = Pushed(decode, WorkClock())
    if begun:
        running.advance(5)
    (thread,) = set(threading.enumerate()) - before  # others of this process may end meanwhile
    assert thread.is_alive()
    running.close()
    assert not thread.is_alive()
    assert cleaned == [True] * begun


def test_closing_closes_a_generator() -> None:
    clock, names = WorkClock(), []
    generator = steps(clock, 4, names)
    running = Pulled(generator, clock)
    running.advance(2)
    running.close()
    assert list(generator) == []
