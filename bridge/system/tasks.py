"""Start work beside the caller's own and wait for events: threads in production, one step at a time in tests.

Knows nothing about what the work is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

_T = TypeVar("_T")


class Task(Protocol):
    """Work that was started."""

    def join(self) -> None:
        """Wait for its end."""
        ...


class Tasks(Protocol):
    """Starts work and waits; the only way a runner does either.

    Attributes:
        glance_s: how long a wait may take before what sets no event, such as an owner's file, is looked at again.
    """

    glance_s: float

    def start(self, work: Callable[[], None], name: str) -> Task:
        """Start work that ends with the program at the latest."""
        ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until an event is set or the time is over; return whether it is set."""
        ...


class Threads:
    """`Tasks` with a thread each."""

    glance_s = 0.1

    def start(self, work: Callable[[], None], name: str) -> Task:
        """Start work in a thread of its own."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait for an event on the machine's own clock."""
        return event.wait(timeout_s)


THREADS = Threads()


def called(what: Callable[[], _T]) -> Future[_T]:
    """Return what a call will have returned or raised; whoever waits for it no longer lets it go on by itself."""
    future: Future[_T] = Future()

    def call() -> None:
        try:
            future.set_result(what())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is read
            future.set_exception(error)

    THREADS.start(call, "call")
    return future
