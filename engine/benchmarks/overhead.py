"""What the decoding loop itself costs: a step's time minus the calls into backend and drafter it consists of.

The calls are timed where they happen, in the same run. On a lazy backend a forward is queued by one call and paid for
by the read in ``decide``, so all calls together are the forwards, and the rest of the step is the loop. What drafter
and target take each is told apart by a pass that waits for the device after every call: slower, so a pass of its own.
"""

from __future__ import annotations

from collections import Counter
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
    """Seconds of decoding and of the calls into drafter and target within it, over ``steps`` steps."""

    decode_s: float
    draft_s: float
    verify_s: float
    steps: int

    @property
    def calls_s(self) -> float:
        """Return the seconds of all calls."""
        return self.draft_s + self.verify_s

    @property
    def share(self) -> float:
        """Return the loop's own share of a step."""
        return (self.decode_s - self.calls_s) / self.decode_s if self.decode_s else 0.0


@dataclass(slots=True)
class Meter:
    """Sums the time spent inside the calls of the objects it wraps, by label; ``wait`` ends each with the device's."""

    clock: Clock
    wait: bool = False
    running: bool = False
    spent_ns: Counter[str] = field(default_factory=Counter)

    def around(self, part: Any, label: str, *names: str) -> Any:
        """Return ``part`` with the named methods timed while the meter runs; generators are timed per item."""
        return _Metered(self, part, label, frozenset(names))

    def call(self, label: str, function: Any, args: Any, kwargs: Any) -> Any:
        """Call and add the time."""
        began_ns = self.clock.host_ns()
        result = function(*args, **kwargs)
        if self.running:
            ended_ns = self.clock.now_ns() if self.wait else self.clock.host_ns()
            self.spent_ns[label] += ended_ns - began_ns
        return self._items(label, result) if isinstance(result, Iterator) else result

    def _items(self, label: str, items: Iterator[Any]) -> Iterator[Any]:
        done = object()
        while (item := self.call(label, next, (items, done), {})) is not done:
            yield item


class _Metered:
    """Passes everything on to ``part``, timing the chosen methods."""

    def __init__(self, meter: Meter, part: Any, label: str, names: frozenset[str]) -> None:
        self._meter, self._part, self._label, self._names = meter, part, label, names

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        if name not in self._names:
            return value
        return lambda *args, **kwargs: self._meter.call(self._label, value, args, kwargs)


def loop_overhead(
    engine: Engine,
    prompt: tuple[int, ...],
    budget_tokens: int,
    depth: Depth,
    *,
    layout: CacheLayout = CacheLayout.NATIVE,
    wait: bool = False,
) -> Overhead:
    """Decode one prompt and split its decode time into calls and loop."""
    clock = engine.backend.clock
    meter = Meter(clock, wait)
    parts = Parts(
        meter.around(
            engine.target.open(engine.drafter.capture, layout),
            "verify",
            "forward_block",
            "decode_ahead",
            "crop",
            "committed",
        ),
        meter.around(engine.drafter.open(), "draft", "propose", "observe"),
        meter.around(engine.accept, "verify", "decide"),
        depth,
        clock,
    )
    steps = speculative(parts, prompt, stopping(engine, prompt, budget_tokens))
    next(steps)
    clock.now_ns()
    meter.running = True
    began_ns, count = clock.host_ns(), 0
    for _ in steps:
        count += 1
    decode_s, spent = (clock.host_ns() - began_ns) / 1e9, meter.spent_ns
    return Overhead(decode_s, spent["draft"] / 1e9, spent["verify"] / 1e9, count)
