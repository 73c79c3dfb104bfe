"""What the next listing of a runner shows: all of a small bus; of a large one the last days, and all once an hour.

A request for a preset that this host does not have, or one older than two days, waits for the whole listing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from bridge.bus.views import ListingWindow
from bridge.limits import LISTING_SMALL_BYTES, LISTING_WHOLE_EVERY_S, LISTING_WHOLE_FIRST_S
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
        self._local = local

    def window(self) -> ListingWindow:
        """Return the window of the last days."""
        return ListingWindow(int(self._clock.now().timestamp() * 1000), tuple(self._presets), tuple(self._unended()))

    def next_window(self) -> ListingWindow | None:
        """Return the window of the next listing, None where the whole bus is due."""
        return None if self._clock.steady_s() >= self._whole_s else self.window()

    def listed(self, window: ListingWindow | None, bytes_received: int) -> None:
        """Note that a listing worked, and what it cost; where all of a bus costs little, the next shows all again."""
        if window is None and not self._local:
            small = 0 < bytes_received <= LISTING_SMALL_BYTES
            self._whole_s = self._clock.steady_s() + (0.0 if small else LISTING_WHOLE_EVERY_S)
