"""An orderly stop: signals become a flag that runs and the loop look at."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bridge.runner.host import Host


@dataclass
class Signals:
    """Signals that were caught, and the hosts that are told to stop."""

    hosts: list[Host] = field(default_factory=list)
    caught: list[int] = field(default_factory=list)

    def watch(self, host: Host) -> None:
        """Tell a host to stop when a signal comes, or now if one came while it was being set up."""
        self.hosts.append(host)
        if self.caught:
            host.stopping.set()

    def stop(self, number: int, _frame: object) -> None:
        """Ask every host to stop; what it runs ends as interrupted and is published."""
        self.caught.append(number)
        for host in self.hosts:
            host.stopping.set()

    def exit_code(self, otherwise: int) -> int:
        """Return 128 + n after signal n."""
        return 128 + self.caught[0] if self.caught else otherwise


@contextmanager
def stopping_on_signals() -> Iterator[Signals]:
    """Turn TERM, INT and HUP into an orderly stop."""
    signals = Signals()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, signals.stop) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
