"""What the next listing of a runner shows: all of a small bus; of a large one the last minutes and what has not ended.

Of a large bus it shows the last days every few minutes, and all once an hour. A request whose id is some minutes old
when it is pushed waits for the days, one for a preset that this host does not have, or older than two days, for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from bridge.bus.views import ListingWindow, Snapshot
from bridge.limits import (
    LISTING_DAYS_EVERY_S,
    LISTING_OPEN_COUNT,
    LISTING_SMALL_BYTES,
    LISTING_WHOLE_EVERY_S,
    LISTING_WHOLE_FIRST_S,
)
from bridge.request import run_id_of
from bridge.system.clock import Clock


class Listings:
    """The listings of one runner.

    Args:
        presets: names of the presets this host has.
        unended: gives the ids of runs that have not ended here; they are listed whatever their age.
        local: whether the bus is this machine's own, where a listing costs nothing worth saving.
    """

    def __init__(
        self, presets: Collection[str], unended: Callable[[], Iterable[str]], clock: Clock, *, local: bool
    ) -> None:
        self._presets, self._unended, self._clock = presets, unended, clock
        self._whole_s = float("-inf") if local else clock.steady_s() + LISTING_WHOLE_FIRST_S
        self._days_s = float("-inf")
        self._open: tuple[str, ...] = ()
        self._local = local

    def next_window(self) -> ListingWindow | None:
        """Return the window of the next listing, None where the whole bus is due."""
        now_s, now_ms = self._clock.steady_s(), int(self._clock.now().timestamp() * 1000)
        if now_s >= self._whole_s:
            return None
        presets, unended = tuple(self._presets), tuple(self._unended())
        if now_s >= self._days_s:
            return ListingWindow(now_ms, presets, unended)
        named = {run_id_of(ref) for ref in self._open}
        unnamed = tuple(run_id for run_id in unended if run_id not in named)
        return ListingWindow(now_ms, presets, unnamed, self._open, fresh=True)

    def listed(self, window: ListingWindow | None, seen: Snapshot) -> None:
        """Note a listing that worked; where all of a bus costs little, the next shows all again.

        The days are due after all, which shows requests of every age whose claims nobody here has read.
        """
        now_s = self._clock.steady_s()
        if window is None:
            self._days_s = float("-inf")
            if not self._local:
                small = 0 < seen.bytes_received <= LISTING_SMALL_BYTES
                self._whole_s = now_s + (0.0 if small else LISTING_WHOLE_EVERY_S)
            return
        self._open = tuple(ref.ref for ref in seen.requests)
        if len(self._open) > LISTING_OPEN_COUNT:
            self._days_s = float("-inf")
        elif not window.fresh:
            self._days_s = now_s + LISTING_DAYS_EVERY_S
