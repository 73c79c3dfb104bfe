"""Call an engine in a thread of its own, so that one that is slow to answer keeps nobody from ending."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def called(what: Callable[[], _T]) -> Future[_T]:
    """Return what a call will have returned or raised; whoever waits for it no longer lets it go on by itself."""
    future: Future[_T] = Future()

    def call() -> None:
        try:
            future.set_result(what())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is read
            future.set_exception(error)

    threading.Thread(target=call, name="engine-call", daemon=True).start()
    return future
