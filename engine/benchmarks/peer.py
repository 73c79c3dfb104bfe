"""What a contestant of a benchmark does: decode a prompt greedily and say when its tokens were there.

Every contestant decodes the same prompts on the same loaded weights in the same process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.decoding.autoregressive import autoregressive
from engine.decoding.prompt import check_prompt
from engine.decoding.speculative import Parts, speculative
from engine.decoding.stopping import Stopping
from engine.drafters.none import NoDrafter
from engine.loading import Engine
from engine.protocols import Clock, Depth, DrafterModel
from engine.types import CacheLayout


@dataclass(frozen=True, slots=True)
class Timed:
    """One decode: tokens, and seconds from the idle device to the first token and from there to the last."""

    tokens: tuple[int, ...]
    first_s: float
    decode_s: float


class Peer(Protocol):
    """One implementation."""

    @property
    def name(self) -> str:
        """How tables call it."""

    @property
    def code_path(self) -> str:
        """``module:function`` of the code that decodes."""

    def decode(self, prompt: tuple[int, ...], budget_tokens: int) -> Timed:
        """Decode greedily until a stop id or the budget."""


@dataclass(slots=True)
class Marks:
    """Tokens as they arrive on the host, with the moments of the first and the last."""

    clock: Clock
    began_ns: int
    first_ns: int = 0
    last_ns: int = 0

    @classmethod
    def start(cls, clock: Clock) -> Marks:
        """Wait for the device, then begin."""
        clock.now_ns()
        return cls(clock, clock.host_ns())

    def arrived(self) -> None:
        """Note that tokens have reached the host."""
        self.last_ns = self.clock.host_ns()
        self.first_ns = self.first_ns or self.last_ns

    def timed(self, tokens: tuple[int, ...]) -> Timed:
        """Return the finished decode."""
        return Timed(tokens, (self.first_ns - self.began_ns) / 1e9, (self.last_ns - self.first_ns) / 1e9)


@dataclass(frozen=True)
class EnginePeer:
    """The engine's speculative loop with a drafter and a depth policy."""

    name: str
    engine: Engine
    drafter: DrafterModel
    depth: Callable[[], Depth]
    layout: CacheLayout
    code_path: str = "engine.decoding.speculative:speculative"

    def decode(self, prompt: tuple[int, ...], budget_tokens: int) -> Timed:
        """Decode with a fresh sequence and a cold depth policy."""
        engine = self.engine
        tokens: list[int] = []
        marks = Marks.start(engine.backend.clock)
        sequence = engine.target.open(self.drafter.capture, self.layout)
        parts = Parts(sequence, self.drafter.open(), engine.accept, self.depth(), engine.backend.clock)
        for step in speculative(parts, prompt, stopping(engine, prompt, budget_tokens)):
            marks.arrived()
            tokens.extend(step.tokens)
        return marks.timed(tuple(tokens))


@dataclass(frozen=True)
class NativePeer:
    """The array library's own autoregressive decoding, as every report's baseline runs it."""

    engine: Engine
    name: str = "native autoregressive"

    @property
    def code_path(self) -> str:
        """Return the library's code."""
        return self.engine.native.code_path

    def decode(self, prompt: tuple[int, ...], budget_tokens: int) -> Timed:
        """Decode with a fresh cache."""
        tokens: list[int] = []
        marks = Marks.start(self.engine.backend.clock)
        for step in self.engine.native.decode(prompt, stopping(self.engine, prompt, budget_tokens), 512):
            marks.arrived()
            tokens.extend(step.tokens)
        return marks.timed(tuple(tokens))


def stopping(engine: Engine, prompt: tuple[int, ...], budget_tokens: int) -> Stopping:
    """Return the stop rules every contestant decodes ``prompt`` under: the target's stop ids and the budget.

    Raises:
        PromptError: If prompt and budget do not fit the target.
    """
    check_prompt(prompt, engine.target.info, new_tokens=budget_tokens)
    return Stopping(budget_tokens, frozenset(engine.target.info.stop_ids))


def oracle(engine: Engine, prompt: tuple[int, ...], budget_tokens: int) -> tuple[int, ...]:
    """Return what plain decoding with every row kept emits: the tokens a contestant must reproduce."""
    sequence = engine.target.open((), CacheLayout.FULL)
    steps = autoregressive(sequence, engine.accept, prompt, stopping(engine, prompt, budget_tokens))
    return tuple(token for step in steps for token in step.tokens)


def engine_peers(
    engine: Engine, depths: dict[str, Callable[[], Depth]], layout: CacheLayout = CacheLayout.NATIVE
) -> list[Peer]:
    """Return the engine's own contestants: without a drafter, and with it at each depth policy."""
    from engine.decoding.depth import FixedDepth

    peers: list[Peer] = [EnginePeer("engine, no drafter", engine, NoDrafter(), lambda: FixedDepth(0), layout)]
    for label, depth in depths.items():
        peers.append(EnginePeer(f"engine, {engine.drafter.info.name}, {label}", engine, engine.drafter, depth, layout))
    return peers
