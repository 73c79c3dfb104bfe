"""How a runner that serves talks: lines with their time, on stderr."""

from __future__ import annotations

import sys

from bridge.system.clock import SystemClock, rfc3339

CLOCK = SystemClock()


def say(line: str) -> None:
    """Write one line of talk with its time."""
    print(f"{rfc3339(CLOCK.now())} {line}", file=sys.stderr, flush=True)
