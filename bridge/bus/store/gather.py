"""Fetch many untrusted tips in few calls, within a budget, so that a bad one costs only itself.

A batch that fails is made smaller until one ref is alone with its fault, which goes into quarantine; a batch that
succeeds lets the next be larger. Knows nothing about what the tips hold.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.bus.store.interface import MissingObjectError, Reader, RefStore
from bridge.bus.store.quarantine import Quarantine
from bridge.errors import BusError, ObjectError, RemoteError

BATCH_MAX_COUNT: Final = 256
_SHRINK: Final = 4


def never() -> bool:
    """Return False: nothing asks to stop."""
    return False


@dataclass
class WorkBudget:
    """What one step may still spend on reading what others pushed.

    Attributes:
        calls: fetches.
        stopping: returns whether to spend nothing more, because the program is asked to end.
    """

    calls: int
    stopping: Callable[[], bool] = never

    def take(self) -> bool:
        """Count one call; return whether it may be made."""
        if self.calls <= 0 or self.stopping():
            return False
        self.calls -= 1
        return True


@dataclass(frozen=True)
class Tip:
    """A listed ref and where it points."""

    ref: str
    oid: str


class Gatherer:
    """Fetches and reads tips for one use.

    Args:
        store: the remote.
        quarantine: takes what is no good.
        use: what the tips are read as.
        batch_max_bytes: what one fetch of several may receive.
        one_max_bytes: what the fetch of one alone may receive.
    """

    def __init__(
        self, store: RefStore, quarantine: Quarantine, use: str, *, batch_max_bytes: int, one_max_bytes: int
    ) -> None:
        self._store, self._quarantine, self._use = store, quarantine, use
        self._batch_max_bytes, self._one_max_bytes = batch_max_bytes, one_max_bytes
        self._size = BATCH_MAX_COUNT

    def gather(self, tips: Sequence[Tip], budget: WorkBudget, read: Callable[[Reader, Tip], None]) -> None:
        """Fetch tips in order and hand each to `read`, as far as the budget goes; one that is no good is left out.

        Args:
            tips: tips that were not read before.
            budget: what may be spent.
            read: reads one tip; an error about the object is noted and costs nothing else.

        Raises:
            RemoteError: the remote did not answer.
        """
        waiting = [tip for tip in tips if self._quarantine.allows(self._use, tip.oid)]
        while waiting and budget.take():
            name = f"{self._use}-{secrets.token_hex(4)}"  # several threads may read for the same use
            part = waiting[: self._size]
            alone = len(part) == 1
            try:
                store = self._store.isolate(
                    name,
                    [tip.oid for tip in part],
                    max_bytes=self._one_max_bytes if alone else self._batch_max_bytes,
                    checked=False,
                    patient=False,
                )
            except (ObjectError, MissingObjectError) as error:
                if alone:
                    self._quarantine.add(self._use, part[0].ref, part[0].oid, error)
                    waiting = waiting[1:]
                else:
                    self._size = max(1, len(part) // _SHRINK)
            except RemoteError as error:
                # Perhaps one of them is what the remote chokes on: smaller parts, and a lone one has to rest.
                self._size = max(1, len(part) // _SHRINK)
                if alone:
                    self._quarantine.rest(self._use, part[0].ref, part[0].oid, error)
                raise
            else:
                self._read(store, part, read)
                waiting = waiting[len(part) :]
                self._size = min(BATCH_MAX_COUNT, 2 * self._size)
            finally:
                self._store.drop(name)

    def _read(self, store: RefStore, part: Sequence[Tip], read: Callable[[Reader, Tip], None]) -> None:
        with store.reader() as reader:
            for tip in part:
                try:
                    read(reader, tip)
                except BusError as error:
                    self._quarantine.add(self._use, tip.ref, tip.oid, error)


def from_both_ends(tips: Sequence[Tip]) -> list[Tip]:
    """Return tips with the oldest and the newest first in turn, so that neither waits behind all of the others."""
    ordered: list[Tip] = []
    left, right = 0, len(tips) - 1
    while left <= right:
        ordered.append(tips[left])
        if left != right:
            ordered.append(tips[right])
        left, right = left + 1, right - 1
    return ordered
