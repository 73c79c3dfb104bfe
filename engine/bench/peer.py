"""What a contestant of a benchmark does: decode a prompt greedily, in turns.

Every contestant decodes the same prompts on the same loaded weights in the same process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from engine.bench.turns import HeldDecode, Pulled
from engine.decoding.autoregressive import autoregressive
from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompt
from engine.decoding.speculative import Parts, speculative
from engine.drafters.none import NoDrafter
from engine.loading import Engine
from engine.protocols import Depth, DrafterModel
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout


class Contestant(Protocol):
    """One implementation that decodes the benchmark's prompts."""

    @property
    def name(self) -> str:
        """The name of its row in tables."""

    @property
    def code_path(self) -> str:
        """``module:function`` of the code that decodes."""

    def start(self, prompt: tuple[int, ...], budget_tokens: int) -> HeldDecode:
        """Return a decode, greedy until a stop id or the budget, that has not begun; its first turn is the prefill."""


@dataclass(frozen=True)
class EnginePeer:
    """The engine's speculative loop with a drafter and a depth policy."""

    name: str
    engine: Engine
    drafter: DrafterModel
    depth: Callable[[], Depth]
    layout: CacheLayout
    code_path: str = "engine.decoding.speculative:speculative"

    def start(self, prompt: tuple[int, ...], budget_tokens: int) -> HeldDecode:
        """Return a decode with a fresh sequence and a cold depth policy."""
        return Pulled(self._tokens(prompt, budget_tokens), self.engine.backend.clock)

    def _tokens(self, prompt: tuple[int, ...], budget_tokens: int) -> Generator[tuple[int, ...]]:
        engine = self.engine
        sequence = engine.target.open(self.drafter.capture, self.layout)
        drafter, clock = self.drafter.open(), engine.backend.clock
        parts = Parts(sequence, drafter, engine.accept, self.depth(), clock, engine.resident)
        for step in speculative(parts, prompt, stopping(engine, prompt, budget_tokens)):
            yield step.tokens


@dataclass(frozen=True)
class NativePeer:
    """The array library's own autoregressive decoding, as every report's baseline runs it."""

    engine: Engine
    name: str = "native autoregressive"

    @property
    def code_path(self) -> str:
        """Return the library's code."""
        return self.engine.native.code_path

    def start(self, prompt: tuple[int, ...], budget_tokens: int) -> HeldDecode:
        """Return a decode with a fresh cache."""
        return Pulled(self._tokens(prompt, budget_tokens), self.engine.backend.clock)

    def _tokens(self, prompt: tuple[int, ...], budget_tokens: int) -> Generator[tuple[int, ...]]:
        for step in self.engine.native.decode(prompt, stopping(self.engine, prompt, budget_tokens), 512):
            yield step.tokens


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
) -> list[Contestant]:
    """Return the engine's own contestants: without a drafter, and with it at each depth policy."""
    peers: list[Contestant] = [EnginePeer("engine, no drafter", engine, NoDrafter(), lambda: FixedDepth(0), layout)]
    for label, depth in depths.items():
        peers.append(EnginePeer(f"engine, {engine.drafter.info.name}, {label}", engine, engine.drafter, depth, layout))
    return peers
