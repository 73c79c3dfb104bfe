"""Whatever happens to a remote drafter and its link, the output is plain decoding's in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.in_thread import serving
from engine.distributed.rpc.methods import DFLASH, NGRAM
from engine.distributed.rpc.remote import remote_model
from engine.distributed.rpc.server import DrafterServer
from engine.distributed.served import serve_ngram
from engine.drafters.ngram import NgramModel
from engine.errors import UsageError
from engine.isolation.drafter_process import DrafterProcess
from engine.protocols import Drafter
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.types import Draft
from tests.fakes.fault_proxy import FaultProxy, fault_proxy
from tests.integration.distributed.conftest import Pair

TOKENS, AT = 40, 12
PATIENCE_S = 1.0
"""How long a server may be silent once a fault has begun; before it a draft may take what a busy machine takes."""


@pytest.fixture
def proxied(pair: Pair) -> Iterator[tuple[FaultProxy, Callable[[], Drafter]]]:
    with ExitStack() as stack:
        proxy = stack.enter_context(fault_proxy(pair.address))
        channel = DrafterChannel(proxy.address, DFLASH)
        stack.callback(channel.close)
        model = remote_model(channel, pair.engine.backend, pair.engine.target, pair.engine.folder, patience_s=600.0)
        yield proxy, model.open


def lose_patience(drafter: Any) -> None:
    """Give a server up that is silent from now on."""
    drafter._model = replace(drafter._model, patience_s=PATIENCE_S)


def decode(pair: Pair, drafter: Drafter, happen: Callable[[], None]) -> tuple[list[int], int]:
    """Decode; ``happen`` is called after ``AT`` tokens. Return the output and how many steps drafted behind that."""
    engine, tokens, drafted = pair.engine, [], 0
    sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
    depth = FixedDepth(3)
    parts = Parts(sequence, drafter, engine.accept, depth, engine.backend.clock, engine.resident)
    happened = False
    for step in speculative(parts, pair.prompts[0], Stopping(TOKENS)):
        tokens += step.tokens
        drafted += happened and step.drafted > 0
        if not happened and len(tokens) >= AT:
            assert drafter.traffic.seconds, "nothing was drafted before the fault"
            happen()
            happened = True
    assert happened
    return tokens, drafted


@pytest.mark.parametrize("fault", ["cut", "reset", "half-open"])
def test_a_link_that_fails_changes_no_token(pair: Pair, proxied, fault: str) -> None:
    proxy, opened = proxied
    drafter = opened()

    def fail() -> None:
        proxy.tell(fault)
        lose_patience(drafter)

    tokens, _ = decode(pair, drafter, fail)
    assert tokens == pair.plain(pair.prompts[0], TOKENS)


def test_a_stream_that_was_cut_is_gone_on_with(pair: Pair, proxied) -> None:
    proxy, opened = proxied
    drafter = opened()

    def cut() -> None:
        proxy.tell("cut")
        # Until a second stream drafts: how soon a busy machine gets to it is not what is shown.
        until = time.monotonic() + 240.0
        while time.monotonic() < until:
            draft = drafter.ask(0, drafter._history.length, 1, None)
            if draft.count and drafter.traffic.sessions >= 2:
                break
            time.sleep(0.05)

    tokens, drafted = decode(pair, drafter, cut)
    assert tokens == pair.plain(pair.prompts[0], TOKENS)
    assert drafter.traffic.sessions >= 2
    assert drafted > 0


@pytest.mark.ci
def test_a_server_that_is_stopped_in_mid_draft_or_killed_costs_a_deadline(pair: Pair) -> None:
    process = DrafterProcess([])
    channel = DrafterChannel(process.address, DFLASH)
    try:
        engine = pair.engine
        model = remote_model(channel, engine.backend, engine.target, engine.folder, patience_s=600.0)
        drafter = model.open()

        def stop() -> None:
            os.kill(process.process.pid, signal.SIGSTOP)
            lose_patience(drafter)

        tokens, _ = decode(pair, drafter, stop)
        assert tokens == pair.plain(pair.prompts[0], TOKENS)
        with suppress(ProcessLookupError):
            os.kill(process.process.pid, signal.SIGCONT)
        killed, _ = decode(pair, model.open(), process.process.kill)
        assert killed == tokens
    finally:
        channel.close()
        process.close()


def test_a_server_that_was_restarted_is_shown_what_its_context_needs(pair: Pair) -> None:
    # The ngram reference: its answers say whether the whole text was shown again.
    served = serve_ngram(NgramModel())
    prompt, bonus = (5, 6, 7, 8, 5, 6, 7), 8
    with serving(DrafterServer({NGRAM: served})) as address:
        channel = DrafterChannel(address, NGRAM)
        model = remote_model(channel, pair.engine.backend, pair.engine.target, pair.engine.folder, patience_s=600.0)
        drafter = model.open()
        drafter.observe(0, prompt, None)
        first = drafter.ask(bonus, len(prompt), 3, None)
    assert first.tokens == (5, 6, 7)
    with serving(DrafterServer({NGRAM: served}), address):
        again = Draft()
        until = time.monotonic() + 240.0
        while not again.count and time.monotonic() < until:
            time.sleep(0.05)
            again = drafter.ask(bonus, len(prompt), 3, None)
        assert again.tokens == first.tokens
        channel.close()


def test_a_drafter_that_lies_about_ids_is_no_drafter(pair: Pair) -> None:
    class Lying:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def ask(self, bonus, position, count, wait_s=0.0):
            return Draft((1 << 31,) * count, count)

    served = serve_ngram(NgramModel())
    lying = type(served)(served.offer, lambda position: Lying(served.open(position)), None)
    with serving(DrafterServer({NGRAM: lying})) as address:
        channel = DrafterChannel(address, NGRAM)
        model = remote_model(channel, pair.engine.backend, pair.engine.target, pair.engine.folder, patience_s=600.0)
        drafter = model.open()
        drafter.observe(0, (5, 6), None)
        assert drafter.ask(7, 2, 3, None).skipped == "the remote drafter sent no usable draft"
        channel.close()


def test_a_server_listens_on_this_machine_only_and_says_that_it_is_well(pair: Pair) -> None:
    with pytest.raises(UsageError, match="is refused"), serving(DrafterServer({}), "0.0.0.0:0"):
        pass
    with grpc.insecure_channel(pair.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=DFLASH.name), timeout=240.0)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
