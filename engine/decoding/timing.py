"""The instrument of the decoding loop: it wraps what the loop calls, so that the loop itself reads no clock.

A depth policy learns how long each step took. A step tells the seconds inside drafter and target where the backend's
calls return with their work done; elsewhere only the policy is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from engine.protocols import Clock, Depth, Pending
from engine.types import LATE, Choice, Decision, Draft, Match, Pause, Step

HIDDEN_SHARE = 0.05
"""Of a queued step's time: a consumer who was away for more may have been what it waited for."""


class TimedDepth:
    """A depth policy that is told by the clock how long a step took, without what its consumer took between steps."""

    def __init__(self, depth: Depth, clock: Clock) -> None:
        self._depth, self._host_ns, self._eager = depth, clock.host_ns, clock.eager
        self._began_ns = self._asked_ns = self._away_ns = 0
        self.begin, self.shadowed, self.interrupts = depth.begin, depth.shadowed, depth.interrupts
        self.waited, self.came_late = depth.waited, depth.came_late

    def pass_over(self, away_ns: int) -> None:
        """Take how long the consumer had the last step: nothing of the loop ran meanwhile."""
        self._began_ns += away_ns
        self._asked_ns += away_ns
        self._away_ns += away_ns

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None]) -> Choice:
        """Return the draft of the step that begins now."""
        choice = self._depth.choose(position, limit, lookup)
        self._began_ns, self._away_ns = self._host_ns(), 0
        return choice

    def park(self, position: int) -> Pause:
        """Return the pause that begins now."""
        pause = self._depth.park(position)
        self._began_ns, self._away_ns = self._host_ns(), 0
        return pause

    def take(self, pending: Pending, choice: Choice) -> Draft:
        """Return a draft that was asked for, waiting for one from elsewhere as long as was chosen.

        The wait is told apart from the step: how long it takes depends on the link, not on the target.
        """
        if isinstance(pending, Draft):
            return pending
        self._asked_ns = self._host_ns()
        draft = pending.take(choice.wait_s)
        if draft.count or draft.skipped == LATE:
            waited_ns = self._host_ns() - self._asked_ns if choice.wait_s != 0.0 else 0
            self._began_ns += waited_ns
            self._depth.waited(waited_ns / 1e9, draft.came_s if draft.count else None)
        return draft

    def silent(self) -> None:
        """Pass on that nothing came of the last ask, with the time since."""
        self._depth.silent((self._host_ns() - self._asked_ns) / 1e9)

    def unanswered(self, position: int, asked: int) -> None:
        """Pass on an ask that came to nothing with its time; the plain step that follows begins now."""
        self._depth.unanswered(position, asked, self._lap_s())

    def record(self, position: int, drafted: int, decision: Decision) -> None:
        """Pass on a finished step with its time; in a pause the next one begins where it ended.

        Of a plain step that a device computed while the consumer was away, nobody knows what it took.
        """
        elapsed_s, away_s = self._lap_s(), self._away_ns / 1e9
        self._away_ns = 0
        hidden = not drafted and not self._eager and away_s > HIDDEN_SHARE * elapsed_s
        self._depth.record(position, drafted, decision, None if hidden else elapsed_s)

    def _lap_s(self) -> float:
        began_ns, self._began_ns = self._began_ns, self._host_ns()
        return (self._began_ns - began_ns) / 1e9


class Spent:
    """Seconds inside the calls it wraps; ``ended_ns`` may wait for the device that ``began_ns`` does not wait for."""

    def __init__(self, began_ns: Callable[[], int], ended_ns: Callable[[], int]) -> None:
        self._began_ns, self._ended_ns = began_ns, ended_ns
        self._ns = 0

    def around(self, part: Any, *calls: str, iterators: tuple[str, ...] = (), asks: tuple[str, ...] = ()) -> Any:
        """Return ``part`` with methods timed: calls, iterators per item, and asks with the wait for their answer."""
        methods = {name: partial(self._call, getattr(part, name)) for name in calls}
        methods |= {name: partial(self._items, getattr(part, name)) for name in iterators}
        methods |= {name: partial(self._ask, getattr(part, name)) for name in asks}
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

    def _ask(self, function: Callable[..., Any], *args: Any) -> Any:
        pending = self._call(function, *args)
        return pending if isinstance(pending, Draft) else self.around(pending, "take")


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


class StepTimes:
    """The seconds of a step inside drafter and target, unknown unless calls return with their work done."""

    def __init__(self, clock: Clock) -> None:
        self._eager = clock.eager
        self._drafting, self._verifying = (Spent(clock.host_ns, clock.host_ns) for _ in range(2))

    def drafter(self, part: Any) -> Any:
        """Return the drafter, timed."""
        return self._drafting.around(part, "lookup", "observe", asks=("ask",)) if self._eager else part

    def sequence(self, part: Any) -> Any:
        """Return the target's sequence with its forwards timed."""
        return self._verifying.around(part, "forward_block", iterators=("decode_ahead",)) if self._eager else part

    def accept(self, part: Any) -> Any:
        """Return the rule, timed: it waits for the target."""
        return self._verifying.around(part, "decide") if self._eager else part

    def filled(self, step: Step) -> Step:
        """Return the step with its times; a prefill has none, nor a step that ran no forward."""
        if not self._eager:
            return step
        draft_s, verify_s = self._drafting.read_s(), self._verifying.read_s()
        if step.target_forwards and not step.prefill:
            # Nobody has seen the step yet, and a copy of one costs more than all its readings.
            object.__setattr__(step, "draft_s", draft_s)
            object.__setattr__(step, "verify_s", verify_s)
        return step
