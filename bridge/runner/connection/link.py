"""A bus as one runner uses it: its record, one lock for all threads of the runner, one budget for all of its pushes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bridge.bus.sides.runner import RunnerBus
from bridge.records.bus import BusRecord
from bridge.runner.connection.known_keys import KnownKeys
from bridge.runner.connection.pacing import PushBudget
from bridge.system.clock import Clock


@dataclass(frozen=True)
class BusLink:
    """Use `bus` only while holding `lock`.

    `judges` says whether this runner knows keys of others, `signs` whether it has one of its own; `signing_runners`
    returns the names of runners whose keys it knows now, of which nothing unsigned counts.
    """

    bus: RunnerBus
    record: BusRecord
    budget: PushBudget
    lock: threading.RLock = field(default_factory=threading.RLock)
    judges: bool = False
    signs: bool = False
    signing_runners: Callable[[], frozenset[str]] = frozenset

    def moving_to(self) -> str:
        """Return where the bus's owner is moving it, as the last listing showed; empty where it stays."""
        return self.bus.identity().moving_to

    def beside(self) -> BusLink:
        """Return a link for one run: it waits neither for the polling nor for other runs, and shares the budget."""
        with self.lock:
            return replace(self, bus=self.bus.beside(), lock=threading.RLock())

    def push_wait_s(self, *, urgent: bool = False) -> float:
        """Return how long a push that can wait should wait: the host's budget, and our own after failures."""
        return max(self.budget.wait_s(urgent=urgent), self.bus.push_wait_s())

    def take_push_turn(self, *, urgent: bool = False) -> bool:
        """Return whether a push that can wait may go now; the caller holds the lock and pushes at once."""
        return self.budget.wait_s(urgent=urgent) == 0.0 and self.bus.take_push_turn()


def link_to(bus: RunnerBus, clock: Clock, keys: KnownKeys | None = None) -> BusLink:
    """Return a link; reads the bus record.

    Args:
        bus: the bus.
        clock: the machine's clocks.
        keys: what this runner knows about keys; None where nothing is signed and nobody is judged.

    Raises:
        BusMissingError: the remote carries no bus.
        InfrastructureError: this runner's key cannot be used.
    """
    if keys is not None:
        bus.use_root(keys.judge_root)
    record = bus.identity()
    mine = None if keys is None else keys.seals()
    if mine is not None:
        bus.use_seals(mine)
    signs = mine is not None and mine.signs
    return BusLink(
        bus,
        record,
        PushBudget(clock, record.lease_s, hosted=bus.hosted),
        judges=mine is not None,
        signs=signs,
        signing_runners=frozenset if keys is None else keys.names,
    )
