"""Answers and conversations with a drafter that another process serves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.distributed.rpc.in_thread import serving
from engine.distributed.rpc.methods import NGRAM
from engine.distributed.rpc.server import DrafterServer
from engine.distributed.served import serve_ngram
from engine.drafters.ngram import NgramModel
from engine.errors import UsageError
from engine.generation.answer import GenerationRequest, generate
from engine.generation.conversation import Conversation
from engine.loading import Engine, open_engine
from engine.protocols import Depth
from engine.structure.layout import CacheLayout
from engine.studies.verify_cost import CostPlan, measure_costs
from engine.tokenizer import Tokenizer
from tests.integration.distributed.conftest import Pair
from tests.support.waiting import until


def two_turns(engine: Engine, tokenizer: Tokenizer, prompt: tuple[int, ...], depth: Depth) -> list[tuple[int, ...]]:
    """Answer a prompt, then go on from the answer in the same conversation."""
    conversation, answers = Conversation(engine, CacheLayout.NATIVE), []
    for turn in range(2):
        if turn:
            prompt = (*prompt, *answers[0], *prompt[:9])
        request = GenerationRequest(prompt, 24, frozenset(), (), CacheLayout.NATIVE, 512)
        answer = generate(engine, tokenizer, request, (engine.accept, depth), conversation=conversation)
        answers.append(answer.tokens)
    return answers


def test_an_address_names_a_drafter_of_either_service_and_changes_no_answer(pair: Pair) -> None:
    backend, folder, prompt = pair.engine.backend, str(pair.engine.folder), pair.prompts[0]
    tokenizer = Tokenizer(pair.engine.folder)
    expected = two_turns(pair.engine, tokenizer, prompt, FixedDepth(0))
    with serving(DrafterServer({NGRAM: serve_ngram(NgramModel())})) as ngram:
        for address, capture in ((pair.address, pair.engine.drafter.capture), (ngram, ())):
            engine = open_engine(backend, folder, f"grpc:{address}")
            # A server that is held up for two seconds is taken for away, and found a moment later.
            until(lambda drafter=engine.drafter, read=capture: drafter.capture == read, why="another drafter came")
            for depth in (FixedDepth(3), ControlledDepth(7)):
                assert two_turns(engine, tokenizer, prompt, depth) == expected


def test_a_drafter_on_another_machine_is_refused_before_anything_is_sent(pair: Pair) -> None:
    with pytest.raises(UsageError, match="ssh -L"):
        open_engine(pair.engine.backend, str(pair.engine.folder), "grpc:192.0.2.7:50051")


def test_what_verifying_costs_is_measured_without_the_drafts_that_come_over_a_link(pair: Pair) -> None:
    costs = measure_costs(replace(pair.engine, drafter=pair.remote()), CostPlan((8,), (1, 4), 1, "seed"))
    assert [row.rows for row in costs.verify] == [1, 4]
    assert costs.draft == ()
