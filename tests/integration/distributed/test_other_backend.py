"""A drafter served by one array library to a target of another: whatever rounding does to drafts, no token changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("torch", reason="one of the two is torch")
pytest.importorskip("transformers", reason="torch's targets are transformers' own")

from engine.bench.remote import RemoteTrial
from engine.decoding.depth import FixedDepth
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.in_thread import serving
from engine.distributed.rpc.methods import DFLASH
from engine.distributed.rpc.remote import remote_model
from engine.distributed.rpc.server import DrafterServer
from engine.distributed.served import serve_dflash
from engine.loading import Engine, load_backend, open_engine, own_drafter, resolve_model
from tests.integration.distributed.conftest import PAIR, Pair

TOKENS, PROMPT_TOKENS = 24, 300
"""The window of the packaged target's sliding layers is far shorter than that prompt."""


@pytest.fixture(scope="module")
def engines(pair: Pair) -> dict[str, Engine]:
    target = resolve_model(PAIR)
    return {"mlx": pair.engine, "torch": open_engine(load_backend("torch", "cpu"), str(target), own_drafter(target))}


@pytest.fixture(scope="module")
def open_remote(engines: dict[str, Engine]) -> Iterator[Callable[[str, str], Any]]:
    """Return the drafter that one library asks of another, which holds of the target what it lends."""
    with ExitStack() as stack:

        def at(asking: str, rows: str) -> Any:
            (serving_one,) = {"mlx", "torch"} - {asking}
            other, asking_engine = engines[serving_one], engines[asking]
            lender = other.backend.load_lender(other.folder)
            drafter = other.backend.load_dflash(resolve_model(str(own_drafter(other.folder))), lender)
            served = serve_dflash(other.backend, drafter, lender.info, other.folder)
            address = stack.enter_context(serving(DrafterServer({DFLASH: served})))
            channel = DrafterChannel(address, DFLASH)
            stack.callback(channel.close)
            return remote_model(
                channel, asking_engine.backend, asking_engine.target, asking_engine.folder, rows=rows, patience_s=600.0
            )

        yield at


@pytest.mark.parametrize(("asking", "rows"), [("mlx", "exact"), ("torch", "exact"), ("mlx", "bfloat16")])
def test_the_output_is_the_asking_targets_own_and_drafts_are_accepted(
    engines: dict[str, Engine], open_remote: Callable[[str, str], Any], pair: Pair, asking: str, rows: str
) -> None:
    joined = tuple(token for prompt in pair.prompts for token in prompt)[:PROMPT_TOKENS]
    trial, model = RemoteTrial(engines[asking], TOKENS), open_remote(asking, rows)
    for prompt in (pair.prompts[0], joined):
        plain = trial.decode(prompt, None, FixedDepth(0))
        there = trial.decode(prompt, model, FixedDepth(3))
        assert there.tokens == plain.tokens
        assert there.drafted_steps > 0
        assert sum(accepted for _, _, accepted in there.drafts) > 0
