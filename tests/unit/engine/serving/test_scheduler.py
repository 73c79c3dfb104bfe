"""Who begins and who waits: by what caches of an answer's own size take, and by whose clients are still there."""

from __future__ import annotations

from contextlib import nullcontext
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from engine.decoding.depth import FixedDepth
from engine.generation.answer import GenerationRequest
from engine.serving.scheduler import Bounds, BusyError, ClosingError, Decoder, Scheduler
from engine.serving.streams import Ask, Event, Failed, Ticket
from engine.structure.layout import CacheLayout

ROW, GROWS_BY = 1000, 64


def scheduler(cache_bytes: int, **bounds: int) -> Scheduler:
    def load() -> Decoder:
        raise AssertionError("nothing is decoded")

    return Scheduler(load, CacheLayout.NATIVE, Bounds(cache_bytes=cache_bytes, **bounds))


def ticket(prompt_tokens: int, new_tokens: int) -> Ticket:
    request = GenerationRequest((2,) * prompt_tokens, new_tokens, frozenset(), (), CacheLayout.NATIVE, 512)
    return Ticket(Ask(request), lambda _: None)


def live(request: Ticket, positions: int, rows: int | None = None) -> Any:
    """Return an answer whose cache holds so many rows, by default as many as it has grown by at once."""
    measured_bytes = ROW * (-(-positions // GROWS_BY) * GROWS_BY if rows is None else rows)
    conversation = SimpleNamespace(positions=positions)
    return SimpleNamespace(ticket=request, measured_bytes=measured_bytes, conversation=conversation)


def test_a_prompt_of_one_token_does_not_keep_longer_answers_apart_for_good() -> None:
    server = scheduler(4 * 512 * ROW)
    server._learn(live(ticket(1, 1), 1))
    first, second = ticket(500, 12), ticket(500, 12)
    assert server._bytes_of(first) == 512 * GROWS_BY * ROW  # nothing else is known: it goes alone
    server._active.append(live(first, 500))
    assert not server._make_room(server._bytes_of(second))
    server._learn(server._active[0])
    server._learn(live(ticket(2, 1), 2))
    assert server._bytes_of(second) == pytest.approx(512 * ROW, rel=0.1)
    assert server._make_room(server._bytes_of(second))


def test_a_short_answer_is_not_reckoned_by_a_long_one_whose_window_slid() -> None:
    server = scheduler(1 << 30)
    for positions in (100, 10_000):
        server._learn(live(ticket(positions, 1), positions, rows=100))
    assert server._bytes_of(ticket(100, 20)) == 120 * ROW
    assert server._bytes_of(ticket(9_000, 1_000)) == 100 * ROW


def test_requests_whose_clients_left_keep_nobody_else_from_waiting() -> None:
    server = scheduler(1 << 30, streams=1, waiting=2)
    server._active.append(live(ticket(1, 1), 1))
    stays, leaves = ticket(1, 1), ticket(1, 1)
    for each in (stays, leaves):
        server.submit(each)
    with pytest.raises(BusyError):
        server.submit(ticket(1, 1))
    leaves.cancel()
    server._admit(SimpleNamespace())  # type: ignore[arg-type]  # none is begun
    server.submit(ticket(1, 1))
    assert (server.waiting, server.counts.cancelled) == (2, 1)
    assert server._waiting[0] is stays


class FaultyScheduler(Scheduler):
    """Meets a fault of the program where an answer would begin."""

    def _begin(self, decoder: Decoder, ticket: Ticket) -> Any:
        raise RuntimeError("a fault")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_that_ends_the_stepping_thread_is_told_to_whoever_waits_and_nobody_waits_behind_it() -> None:
    engine: Any = SimpleNamespace(resident=nullcontext, backend=SimpleNamespace(leave_thread=lambda: None))
    tokenizer: Any = None
    decoder = Decoder(engine, tokenizer, lambda drawn: FixedDepth(0))
    server = FaultyScheduler(lambda: decoder, CacheLayout.NATIVE, Bounds())
    server.start()
    events = Queue[Event]()
    server.submit(Ticket(ticket(1, 1).ask, events.put))
    event = events.get(timeout=60)
    assert isinstance(event, Failed)
    assert isinstance(event.error, ClosingError)
    with pytest.raises(ClosingError):
        server.submit(ticket(1, 1))
    server.stop()
    assert (server.alive, server.active, server.waiting) == (False, 0, 0)
