"""What the decoding loop itself costs: a step's time minus the calls into backend and drafter it consists of.

The calls are timed where they happen, in the same run. On a lazy backend a forward is queued by one call and paid for
by the read in ``decide``, so all calls together are the forwards, and the rest of the step is the loop. What drafter
and target take each is told apart by a pass that waits for the device after every call: slower, so a pass of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.bench.peer import stopping
from engine.decoding.speculative import Parts, speculative
from engine.loading import Engine
from engine.protocols import Depth
from engine.structure.layout import CacheLayout


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
    ended_ns = clock.now_ns if wait else clock.host_ns
    drafting, verifying = Spent(clock.host_ns, ended_ns), Spent(clock.host_ns, ended_ns)
    sequence = engine.target.open(engine.drafter.capture, layout)
    parts = Parts(
        verifying.around(sequence, "forward_block", "crop", "committed", iterators=("decode_ahead",)),
        drafting.around(engine.drafter.open(), "ask", "observe"),
        verifying.around(engine.accept, "decide"),
        depth,
        clock,
        engine.resident,
    )
    steps = speculative(parts, prompt, stopping(engine, prompt, budget_tokens))
    next(steps)
    clock.now_ns()
    for spent in (drafting, verifying):
        spent.read_s()
    began_ns, count = clock.host_ns(), 0
    for _ in steps:
        count += 1
    decode_s = (clock.host_ns() - began_ns) / 1e9
    return Overhead(decode_s, drafting.read_s(), verifying.read_s(), count)


class Spent:
    """Seconds inside the calls it wraps; ``ended_ns`` may wait for the device that ``began_ns`` does not wait for."""

    def __init__(self, began_ns: Callable[[], int], ended_ns: Callable[[], int]) -> None:
        self._began_ns, self._ended_ns = began_ns, ended_ns
        self._ns = 0

    def around(self, part: Any, *calls: str, iterators: tuple[str, ...] = ()) -> Any:
        """Return ``part`` with methods timed: calls, and iterators per item."""
        methods = {name: partial(self._call, getattr(part, name)) for name in calls}
        methods |= {name: partial(self._items, getattr(part, name)) for name in iterators}
        return _Timed(part, methods)

    def read_s(self) -> float:
        """Return the seconds since the last reading."""
        spent_ns, self._ns = self._ns, 0
        return spent_ns / 1e9

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        began_ns = self._began_ns()
        result = function(*args)
        self._ns += self._ended_ns() - began_ns
        return result

    def _items(self, function: Callable[..., Iterator[Any]], *args: Any) -> Iterator[Any]:
        items, done = self._call(function, *args), object()
        while (item := self._call(next, items, done)) is not done:
            yield item


class _Timed:
    """Passes everything on to ``part`` but the methods given."""

    def __init__(self, part: Any, methods: dict[str, Any]) -> None:
        self._part = part
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        if callable(value):
            # A method stays what it is: the next look finds it without coming here.
            self.__dict__[name] = value
        return value
