"""What the decoding loop itself costs: a step's time minus the calls into backend and drafter it consists of.

The calls are timed where they happen, in the same run. On a lazy backend a forward is queued by one call and paid for
by the read in ``decide``, so all calls together are the forwards, and the rest of the step is the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.benchmarks.peer import stopping
from engine.decoding.speculative import Parts, speculative
from engine.loading import Engine
from engine.protocols import Clock, Depth
from engine.types import CacheLayout


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds of decoding and of the calls within it, over ``steps`` steps."""

    decode_s: float
    calls_s: float
    steps: int

    @property
    def share(self) -> float:
        """Return the loop's own share of a step."""
        return (self.decode_s - self.calls_s) / self.decode_s if self.decode_s else 0.0


@dataclass(slots=True)
class Meter:
    """Sums the time spent inside the calls of the objects it wraps."""

    clock: Clock
    spent_ns: int = 0
    running: bool = False
    wrapped: list[Any] = field(default_factory=list)

    def around(self, part: Any, *names: str) -> Any:
        """Return ``part`` with the named methods timed while the meter runs; generators are timed per item."""
        return _Metered(self, part, frozenset(names))

    def call(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Call and add the time."""
        began_ns = self.clock.host_ns()
        result = function(*args, **kwargs)
        if self.running:
            self.spent_ns += self.clock.host_ns() - began_ns
        return self._items(result) if isinstance(result, Iterator) else result

    def _items(self, items: Iterator[Any]) -> Iterator[Any]:
        done = object()
        while (item := self.call(next, (items, done), {})) is not done:
            yield item


class _Metered:
    """Passes everything on to ``part``, timing the chosen methods."""

    def __init__(self, meter: Meter, part: Any, names: frozenset[str]) -> None:
        self._meter, self._part, self._names = meter, part, names

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        if name not in self._names:
            return value
        return lambda *args, **kwargs: self._meter.call(value, args, kwargs)


def loop_overhead(
    engine: Engine, prompt: tuple[int, ...], budget_tokens: int, depth: Depth, layout: CacheLayout = CacheLayout.NATIVE
) -> Overhead:
    """Decode one prompt and split its decode time into calls and loop."""
    clock = engine.backend.clock
    meter = Meter(clock)
    parts = Parts(
        meter.around(
            engine.target.open(engine.drafter.capture, layout),
            "forward_block",
            "decode_ahead",
            "crop",
            "committed",
        ),
        meter.around(engine.drafter.open(), "propose", "observe"),
        meter.around(engine.accept, "decide"),
        depth,
        clock,
    )
    steps = speculative(parts, prompt, stopping(engine, budget_tokens))
    next(steps)
    clock.now_ns()
    meter.running = True
    began_ns, count = clock.host_ns(), 0
    for _ in steps:
        count += 1
    return Overhead((clock.host_ns() - began_ns) / 1e9, meter.spent_ns / 1e9, count)
