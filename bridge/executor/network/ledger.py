"""Count what a run exchanged with which host, and what it was refused, from several threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from bridge.records.network import NetworkUse, ReachedHost, RefusedContact

LISTED_MAX_COUNT: Final = 64


@dataclass
class Traffic:
    """What went through the connections to one host and port."""

    connections: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class Ledger:
    """The counts of one run, over all of its commands; lists are bounded, and what is beyond them is counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached: dict[tuple[str, int], Traffic] = {}
        self._refused: dict[tuple[str, str], int] = {}
        self._unlisted = 0

    def begin(self, name: str, port: int) -> Traffic:
        """Count a connection; return the counts of its host, for `add`."""
        with self._lock:
            if (name, port) not in self._reached and len(self._reached) >= LISTED_MAX_COUNT:
                self._unlisted += 1
                return Traffic()
            traffic = self._reached.setdefault((name, port), Traffic())
            traffic.connections += 1
            return traffic

    def add(self, traffic: Traffic, *, sent: int = 0, received: int = 0) -> None:
        """Add bytes to a host's counts."""
        with self._lock:
            traffic.sent_bytes += sent
            traffic.received_bytes += received

    def refuse(self, target: str, reason: str) -> None:
        """Count what a run asked for in vain."""
        with self._lock:
            if (target, reason) not in self._refused and len(self._refused) >= LISTED_MAX_COUNT:
                self._unlisted += 1
                return
            self._refused[target, reason] = self._refused.get((target, reason), 0) + 1

    def use(self) -> NetworkUse:
        """Return what was reached and refused so far."""
        with self._lock:
            reached = tuple(
                ReachedHost(
                    host=name,
                    port=port,
                    connections=traffic.connections,
                    sent_bytes=traffic.sent_bytes,
                    received_bytes=traffic.received_bytes,
                )
                for (name, port), traffic in self._reached.items()
            )
            refused = tuple(
                RefusedContact(target=target, reason=reason, count=count)
                for (target, reason), count in self._refused.items()
            )
            return NetworkUse(reached=reached, refused=refused, unlisted=self._unlisted)
