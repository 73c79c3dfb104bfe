"""A drafter that is not there when its target is loaded, and drafts for the answer under way once it is."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from engine.cli import bench
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.distributed.rpc.in_thread import serving
from engine.distributed.rpc.methods import DFLASH, NGRAM
from engine.distributed.rpc.server import DrafterServer
from engine.distributed.served import serve_dflash, serve_ngram
from engine.drafters.ngram import NgramModel
from engine.loading import open_engine
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from tests.fakes.git_servers import free_port
from tests.integration.distributed.conftest import Pair
from tests.support.waiting import until

TOKENS, BEFORE = 48, 8


@pytest.mark.parametrize("kind", ["ngram", "dflash"])
def test_a_drafter_that_comes_in_mid_answer_is_shown_the_text_and_drafts(pair: Pair, kind: str) -> None:
    address, prompt = f"127.0.0.1:{free_port()}", pair.prompts[0]
    engine = open_engine(pair.engine.backend, str(pair.engine.folder), f"grpc:{address}")
    model: Any = engine.drafter
    assert "is it served there" in model.why
    assert model.capture == pair.engine.drafter.capture  # rows are kept for the target's own drafter
    sequence = engine.target.open(model.capture, CacheLayout.NATIVE)
    parts = Parts(sequence, model.open(), engine.accept, FixedDepth(3), engine.backend.clock, engine.resident)
    if kind == "ngram":
        served = {NGRAM: serve_ngram(NgramModel())}
    else:
        served = {DFLASH: serve_dflash(engine.backend, pair.engine.drafter, engine.target.info, engine.folder)}
    tokens, skipped, drafted = [], [], 0
    with ExitStack() as stack:
        for step in speculative(parts, prompt, Stopping(TOKENS)):
            tokens += step.tokens
            drafted += step.drafted
            skipped += [step.skipped] if step.skipped else []
            if len(tokens) == BEFORE:
                stack.enter_context(serving(DrafterServer(served), address))
                until(lambda: model.there is not None, why="the drafter was never found")
    assert tokens == pair.plain(prompt, TOKENS)
    assert skipped[0].startswith(f"the remote drafter is away: no drafter answers at {address}")
    assert drafted > 0
    assert model.info.name == next(iter(served.values())).offer.info.name


def test_a_benchmark_knows_a_drafter_elsewhere_and_spoils_none(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    assert not bench._is_elsewhere(pair.engine)
    assert bench._is_elsewhere(replace(pair.engine, drafter=pair.remote()))
    words = ["controller", "--target", str(pair.engine.folder), "--drafter", f"grpc:127.0.0.1:{free_port()}"]
    assert bench.main([*words, "--prompts", "2", "--max-new", "4"]) == 2
    assert "drafts are spoilt where they are asked for" in capsys.readouterr().err
