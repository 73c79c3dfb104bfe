"""An orderly stop: signals set a flag that runs and the loop check."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Signals:
    """Signals that were caught, and the flag that they set: what runs ends as interrupted and is published."""

    stopping: threading.Event
    caught: list[int] = field(default_factory=list)

    def stop(self, number: int, _frame: object) -> None:
        """Note a signal and set the flag."""
        self.caught.append(number)
        self.stopping.set()

    def exit_code(self, otherwise: int) -> int:
        """Return 128 + n after signal n."""
        return 128 + self.caught[0] if self.caught else otherwise


@contextmanager
def stopping_on_signals(stopping: threading.Event) -> Iterator[Signals]:
    """Turn TERM, INT and HUP into an orderly stop."""
    signals = Signals(stopping)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, signals.stop) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
