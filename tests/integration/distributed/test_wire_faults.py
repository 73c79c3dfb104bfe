"""Messages that arrive other than they were sent, sessions that are gone, and clients that do not read."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import psutil
import pytest

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.distributed.compatibility import FORMATS
from engine.distributed.kakeya.v1 import proposer_pb2 as pb
from engine.distributed.remote_drafter import RemoteModel
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.in_thread import serving
from engine.distributed.rpc.methods import DFLASH, NGRAM
from engine.distributed.rpc.remote import remote_model
from engine.distributed.rpc.server import DrafterServer
from engine.distributed.served import serve_ngram
from engine.distributed.session import TokenHash
from engine.distributed.stream import Listener
from engine.drafters.ngram import NgramModel
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from tests.fakes.struck_stream import FAULTS, StruckStream
from tests.integration.distributed.conftest import Pair
from tests.unit.engine.distributed.test_sessions import SERVED, block_of, opening

PATIENT_S = 120.0
BUDGET = 600


def until(true: Callable[[], bool], what: str, patient_s: float = PATIENT_S) -> None:
    """Wait until something holds, however busy the machine is."""
    end_s = time.monotonic() + patient_s
    while not true():
        assert time.monotonic() < end_s, what
        time.sleep(0.02)


def test_what_arrives_changed_costs_drafts_and_no_token(pair: Pair) -> None:
    """One after the other in one text: each fault ends a session, and the next drafts again."""
    waiting, armed, drafted = list(FAULTS), [], set()
    model: RemoteModel = pair.remote(patience_s=1.0)
    model = replace(model, connect=lambda listener: StruckStream(pair.channel.connect(listener), armed))
    engine, prompt, tokens = pair.engine, pair.prompts[0], []
    while waiting or armed:  # a busy machine may come to the end of a text before the last of them
        sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
        parts = Parts(sequence, model.open(), engine.accept, FixedDepth(3), engine.backend.clock)
        tokens = []
        for step in speculative(parts, prompt, Stopping(BUDGET)):
            tokens += step.tokens
            if step.drafted and not armed and waiting:
                armed.append(waiting.pop())
                drafted.add(len(waiting))
            elif step.drafted and not armed and not waiting:
                break
        assert tokens == pair.plain(prompt, len(tokens))[: len(tokens)]
    assert len(drafted) == len(FAULTS)


class Ngram:
    """A server of prompt lookup with its address, and how to ask it."""

    def __init__(self, lease_s: float = 30.0, most: int = 64) -> None:
        self.served = serve_ngram(NgramModel(), lease_s)
        self.server = DrafterServer({NGRAM: self.served}, lease_s, most)
        self.address = ""

    @property
    def sessions(self) -> int:
        return len(self.server.tables[NGRAM])

    def opening(self) -> pb.Open:
        agreed = self.served.offer.compatibility("float32")
        return pb.Open(compatibility=agreed, row_format=FORMATS["float32"])


@pytest.fixture
def ngram() -> Iterator[Ngram]:
    made = Ngram()
    with serving(made.server) as made.address:
        yield made


def model_at(pair: Pair, channel: DrafterChannel) -> RemoteModel:
    return remote_model(channel, pair.engine.backend, pair.engine.target, pair.engine.folder, patience_s=PATIENT_S)


def test_a_session_whose_lease_ran_out_begins_anew(pair: Pair, ngram: Ngram) -> None:
    channel = DrafterChannel(ngram.address, NGRAM)
    drafter = model_at(pair, channel).open()
    drafter.observe(0, (5, 6, 7, 8, 5, 6), None)
    first = drafter.ask(7, 6, 2, None)
    assert first.count
    table = ngram.server.tables[NGRAM]
    for lease in list(table._leases.values()):  # as the sweep would, an hour later
        table.close(lease.session)
    again = drafter.ask(7, 6, 2, None)
    while not again.count:
        again = drafter.ask(7, 6, 2, None)
        time.sleep(0.02)
    assert again.tokens == first.tokens
    assert drafter.traffic.sessions >= 2
    channel.close()


def test_sessions_are_bounded_and_room_is_made_by_closing(pair: Pair, ngram: Ngram) -> None:
    channel = DrafterChannel(ngram.address, NGRAM)
    model = model_at(pair, channel)
    drafters = [model.open() for _ in range(64)]
    until(lambda: ngram.sessions == 64, "all are open")
    for drafter in drafters:
        drafter.observe(0, (5, 6, 5), None)
    late = model.open()
    late.observe(0, (5, 6, 5), None)
    until(lambda: late.ask(6, 3, 1, None).skipped == "no connection to the remote drafter", "one more is refused")
    assert ngram.sessions == 64
    assert drafters[0].ask(6, 3, 1, None).count == 1
    drafters[0].close()
    until(lambda: late.ask(6, 3, 1, None).count == 1, "there is room again")
    channel.close()


def test_a_session_that_was_refused_keeps_no_place(ngram: Ngram) -> None:
    with grpc.insecure_channel(ngram.address) as channel:
        stream = channel.stream_stream(
            NGRAM.path(NGRAM.stream), NGRAM.request.SerializeToString, NGRAM.response.FromString
        )
        for _ in range(70):  # more than there are places
            call = stream(iter([NGRAM.wrapped(ngram.opening()), NGRAM.wrapped(ngram.opening())]), timeout=PATIENT_S)
            with pytest.raises(grpc.RpcError) as refused:
                list(call)
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    until(lambda: ngram.sessions == 0, "none is kept")


def test_a_session_that_waits_for_its_client_holds_no_rows_of_the_last_block() -> None:
    answered, over = threading.Event(), threading.Event()
    server = DrafterServer({DFLASH: SERVED})
    table = server.tables[DFLASH]

    def shown() -> Iterator[Any]:
        yield DFLASH.wrapped(opening())
        until(lambda: len(table) == 1, "it is open")
        (lease,) = table._leases.values()
        yield DFLASH.wrapped(block_of(lease.session, 1, 0, (0, 1, 2)))
        over.wait(PATIENT_S)

    def read(call: Any) -> None:
        for response in call:
            if response.WhichOneof("kind") == "draft":
                answered.set()

    with serving(server) as address, grpc.insecure_channel(address) as channel:
        path = DFLASH.path(DFLASH.stream)
        call = channel.stream_stream(path, DFLASH.request.SerializeToString, DFLASH.response.FromString)(shown())
        reading = threading.Thread(target=read, args=(call,), daemon=True)
        reading.start()
        assert answered.wait(PATIENT_S)
        until(lambda: table._budget.taken == 0, "what was observed is let go", 20.0)  # not with its lease of 30 s
        over.set()
        reading.join()


def test_a_server_with_leases_of_a_millisecond_is_not_told_more_often_than_a_thread_is_worth() -> None:
    served = serve_ngram(NgramModel(), 0.001)
    with serving(DrafterServer({NGRAM: served})) as address:
        channel = DrafterChannel(address, NGRAM)
        assert channel.describe().lease_s == 0.001
        stream = channel.connect(Listener(lambda reply: None, lambda status, message: None))
        assert stream._renew_s == 0.1
        channel.close()


def asks(ngram: Ngram, stop: threading.Event) -> Iterator[object]:
    """Yield the messages of a client that goes on asking."""
    yield NGRAM.wrapped(ngram.opening())
    session = ""
    while not session and not stop.is_set():
        table = ngram.server.tables[NGRAM]
        session = next(iter(table._leases), "")
        time.sleep(0.01)
    # Ids that take five bytes each: what is sent fills the windows of the connection the sooner.
    text = tuple((1 << 31) + number for number in range(100)) * 2
    hashed, number = TokenHash(), 0
    hashed.add(text)
    while not stop.is_set():
        number += 1
        block = pb.Block(session=session, sequence=number)
        if number == 1:
            block.segments.add(start=0, tokens=text)
        ask = pb.Ask(bonus=text[0], context_length=len(text), count=64, token_hash=hashed.with_bonus(text[0]))
        block.ask.CopyFrom(ask)
        yield NGRAM.wrapped(block)


@pytest.mark.slow
def test_a_client_that_reads_nothing_holds_nobody_up_and_is_let_go(pair: Pair) -> None:
    made, stop = Ngram(lease_s=2.0), threading.Event()
    with serving(made.server) as made.address, grpc.insecure_channel(made.address) as channel:
        call = channel.stream_stream(
            NGRAM.path(NGRAM.stream), NGRAM.request.SerializeToString, NGRAM.response.FromString
        )(asks(made, stop))
        until(lambda: made.sessions == 1, "it is open")
        other = DrafterChannel(made.address, NGRAM)
        drafter = model_at(pair, other).open()
        drafter.observe(0, (5, 6, 5), None)
        until(lambda: drafter.ask(6, 3, 1, None).count == 1, "another client is answered meanwhile")
        drafter.close()
        until(lambda: made.sessions == 0, "what it holds is let go", 500.0)
        with suppress(grpc.RpcError):
            for _ in call:
                pass
        assert call.code() == grpc.StatusCode.NOT_FOUND
        stop.set()
        other.close()


@pytest.mark.slow
def test_ten_thousand_sessions_over_sockets_leave_nothing(pair: Pair, ngram: Ngram) -> None:
    channel = DrafterChannel(ngram.address, NGRAM)
    model = model_at(pair, channel)

    def some(count: int) -> None:
        for _ in range(count):
            drafter = model.open()
            drafter.observe(0, (5, 6, 5), None)
            assert drafter.ask(6, 3, 1, None).count == 1
            drafter.close()
        until(lambda: ngram.sessions == 0, "all are closed")
        until(lambda: threading.active_count() < 40, "their threads have ended")
        gc.collect()

    process = psutil.Process()
    some(1000)
    before, files = process.memory_info().rss, process.num_fds()
    some(9000)
    # What one session held, kept for each of nine thousand, would be far more.
    assert process.memory_info().rss - before < 32 << 20
    assert process.num_fds() <= files + 5
    channel.close()
