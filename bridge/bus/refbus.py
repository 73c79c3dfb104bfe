"""The protocol of the bus over any store of refs, for both sides.

Knows nothing about git, policy or evidence.
"""

from __future__ import annotations

from bridge.bus.sides.requester import RequesterBus
from bridge.bus.sides.runner import RunnerBus


class RefBus(RequesterBus, RunnerBus):
    """A bus over a store, for both sides."""

    GO_ON = RunnerBus.GO_ON  # who opens one serves
