"""The packaged pair on MLX with its drafter served on loopback, and prompts that end short and far past its window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("grpc", reason="remote drafters are asked over gRPC")
pytest.importorskip("mlx.core", reason="the packaged pair is decoded with MLX")

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.in_thread import serving
from engine.distributed.rpc.methods import DFLASH
from engine.distributed.rpc.remote import remote_model
from engine.distributed.rpc.server import DrafterServer
from engine.distributed.served import serve_dflash
from engine.loading import Engine, load_backend, open_engine, own_drafter, resolve_model
from engine.measurement.selection import load_prompts
from engine.protocols import Depth, Drafter
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import Step
from tests.support.decoding import tokens_of

PAIR = "kakeya-tiny-gemma4"


@dataclass
class Pair:
    """The engine, its served drafter, and how to decode with any drafter."""

    engine: Engine
    address: str
    channel: DrafterChannel
    prompts: list[tuple[int, ...]]
    plain_tokens: dict[tuple[tuple[int, ...], int], list[int]] = field(default_factory=dict)

    def remote(self, **options: Any) -> Any:
        # No test may depend on how fast a busy machine is.
        options = {"patience_s": 600.0} | options
        return remote_model(self.channel, self.engine.backend, self.engine.target, self.engine.folder, **options)

    def steps(self, drafter: Drafter, depth: Depth, prompt: tuple[int, ...], tokens: int) -> list[Step]:
        engine = self.engine
        sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
        parts = Parts(sequence, drafter, engine.accept, depth, engine.backend.clock, engine.resident)
        return list(speculative(parts, prompt, Stopping(tokens)))

    def plain(self, prompt: tuple[int, ...], tokens: int) -> list[int]:
        """Return what plain decoding says, each prompt decoded once."""
        if (prompt, tokens) not in self.plain_tokens:
            steps = self.steps(self.engine.drafter.open(), FixedDepth(0), prompt, tokens)
            self.plain_tokens[prompt, tokens] = tokens_of(steps)
        return self.plain_tokens[prompt, tokens]


@pytest.fixture(scope="session")
def pair() -> Iterator[Pair]:
    target = resolve_model(PAIR)
    engine = open_engine(load_backend("mlx"), str(target), own_drafter(target))
    prompts = [prompt.ids for prompt in load_prompts("code-structured", Tokenizer(engine.folder), PAIR).prompts]
    served = serve_dflash(engine.backend, engine.drafter, engine.target.info, engine.folder)
    with serving(DrafterServer({DFLASH: served})) as address:
        channel = DrafterChannel(address, DFLASH)
        yield Pair(engine, address, channel, sorted(prompts, key=len))
        channel.close()


@pytest.fixture
def decode(pair: Pair) -> Callable[..., list[Step]]:
    return pair.steps
