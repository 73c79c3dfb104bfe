"""One server a backend in this process, on a real socket of loopback, and the engine that its answers must equal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from engine.decoding.depth import FixedDepth
from engine.generation.answer import Answer, GenerationRequest, generate
from engine.loading import Engine, load_backend, open_engine
from engine.serving.app import Served, build
from engine.serving.scheduler import Bounds, Decoder, Scheduler
from engine.serving.server import listening
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from tests.support.waiting import until

MODEL = "kakeya-tiny-gemma4"
KEY = "a-key-of-the-tests"
BOUNDS = Bounds(streams=8, waiting=16)


def open_small(name: str) -> Engine:
    backend = load_backend("mlx") if name == "mlx" else load_backend("torch", device="cpu")
    return open_engine(backend, MODEL, f"{MODEL}-dflash")


class WatchedScheduler(Scheduler):
    """Says whether all that was handed over is made, measured and let go: its thread waits for something to do."""

    _waits = False

    def _await_work(self) -> bool:
        with self._change:  # the wait inside lets go of it
            self._waits = True
            goes_on = super()._await_work()
            self._waits = False
        return goes_on

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being made, or about to be."""
        with self._change:
            return self._waits and not (self.active or self.waiting)


@dataclass
class Server:
    """A server that answers.

    Attributes:
        url: of its port.
        engine: another one of the same weights, for what its answers must be.
    """

    url: str
    scheduler: WatchedScheduler
    engine: Engine
    tokenizer: Tokenizer

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.url.removeprefix("http://").removesuffix("/v1").partition(":")
        return host, int(port)

    def expect(self, prompt: str | tuple[int, ...], new_tokens: int, **changes: Any) -> Answer:
        """Return what `generate` answers."""
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        stop_ids = frozenset(self.engine.target.info.stop_ids)
        request = GenerationRequest(ids, new_tokens, stop_ids, (), CacheLayout.NATIVE, 512, **changes)
        return generate(self.engine, self.tokenizer, request, (self.engine.accept, FixedDepth(3)))

    def settle(self) -> None:
        """Wait until nothing is being made."""
        until(lambda: self.scheduler.is_settled, why="answers are still being made")


@pytest.fixture(scope="module", params=[pytest.param("torch", marks=pytest.mark.ci), "mlx"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(request.param) as running:
        yield running


@pytest.fixture(scope="module")
def any_server() -> Iterator[Server]:
    """Serve on one backend, for what happens before an array is touched."""
    with serving("mlx") as running:
        yield running


@contextmanager
def serving(name: str, bounds: Bounds = BOUNDS, read: Callable[[Path], Tokenizer] = Tokenizer) -> Iterator[Server]:
    library = {"mlx": "mlx.core", "torch": "torch"}[name]
    pytest.importorskip(library, reason=f"the backend {name} is not installed")

    def load() -> Decoder:
        engine = open_small(name)
        return Decoder(engine, read(engine.folder), lambda drawn: FixedDepth(3))

    scheduler = WatchedScheduler(load, CacheLayout.NATIVE, bounds)
    decoder = scheduler.start()
    served = Served(decoder.engine, decoder.tokenizer, CacheLayout.NATIVE, 512, KEY)
    with listening("127.0.0.1:0") as (bound, url):
        # A client that is held up between two requests finds its connection open.
        config = uvicorn.Config(
            build(served, scheduler), log_level="warning", lifespan="on", http="h11", timeout_keep_alive=240
        )
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            engine = open_small(name)
            yield Server(url, scheduler, engine, Tokenizer(engine.folder))
        finally:
            running.should_exit = True
            thread.join()
    assert not scheduler.alive
