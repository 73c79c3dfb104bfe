"""Time in a process that decodes nothing itself: there is no device to wait for."""

from __future__ import annotations

import time


class HostClock:
    """Implements `engine.protocols.Clock`."""

    eager = False
    """What runs runs elsewhere: nothing here can tell its parts apart."""

    def now_ns(self) -> int:
        """Read the clock; nothing runs here that could be waited for."""
        return time.perf_counter_ns()

    def host_ns(self) -> int:
        """Read the clock."""
        return time.perf_counter_ns()
