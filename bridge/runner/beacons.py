"""This runner's sign of life, sent along with other pushes where there are any.

Knows what the runner knows of itself; pushes nothing.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from typing import Literal

from bridge.records import Beacon, BusRecord
from bridge.runner.host import Host
from bridge.system.clock import rfc3339


class Beacons:
    """Makes the next beacon when one is due; the sequence goes on from what the bus shows."""

    def __init__(self, host: Host, record: BusRecord, sequence: int, running: Callable[[], tuple[str, ...]]) -> None:
        self._host = host
        self._interval_s = record.beacon_interval_s
        self._sequence = sequence
        self._running = running
        self._last_s = float("-inf")
        self._queue = 0
        self._lock = threading.Lock()

    def saw_queue(self, pending: int) -> None:
        """Note how many requests wait."""
        self._queue = pending

    def due(self) -> Beacon | None:
        """Return the next beacon if one is due, None otherwise."""
        with self._lock:
            now_s = self._host.clock.steady_s()
            if now_s - self._last_s < self._interval_s:
                return None
            self._last_s = now_s
            return self._next()

    def now(self) -> Beacon:
        """Return the next beacon, due or not."""
        with self._lock:
            self._last_s = self._host.clock.steady_s()
            return self._next()

    def _next(self) -> Beacon:
        self._sequence += 1
        host, running = self._host, self._running()
        described = host.executor.host()
        return Beacon(
            runner=host.name,
            version=host.version,
            sequence=self._sequence,
            state=_state(host, running),
            policy_digest=host.facts.digest,
            presets=tuple(p.name for p in host.presets.values() if p.status == "ready" and host.facts.allows(p.name)),
            labels=host.policy.labels,
            capabilities=_capabilities(host),
            host=f"{described.os} {described.machine} {described.cpu}"[:200],
            queue=self._queue,
            running=running,
            disk_free_bytes=shutil.disk_usage(host.state.root).free,
            thermal="unknown",
            time=rfc3339(host.clock.now()),
        )


def _state(host: Host, running: tuple[str, ...]) -> Literal["idle", "busy", "paused", "draining"]:
    if host.state.drain.exists() or host.stopping.is_set():
        return "draining"
    if host.state.pause.exists():
        return "paused"
    return "busy" if running else "idle"


def _capabilities(host: Host) -> tuple[str, ...]:
    found = [*filter(host.code.packages.__contains__, ("mlx", "mlx-lm", "torch"))]
    found += [device.split()[0] for device in host.executor.host().devices]
    sandbox = host.executor.sandbox()
    return (*found, f"sandbox:{sandbox.kind}")
