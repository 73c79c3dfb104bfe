"""Put the trees of a request into folders: one, or several that together get what one may cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bridge.bus.content.checkout import CheckoutBounds, check_out
from bridge.bus.content.large_files import Handling
from bridge.bus.store.interface import RefStore
from bridge.system.clock import Clock

Found = tuple[RefStore, str]
"""A store and a tree in it."""


def fetch(
    found: Found, into: Path, clock: Clock, bounds: CheckoutBounds | None = None, *, large_files: Handling = "refuse"
) -> CheckoutBounds:
    """Write a tree into an empty folder and return what is left of the bounds.

    Raises:
        RequestRejectedError: it breaks a bound, or holds what a checkout must not hold.
    """
    store, top = found
    with store.reader() as reader:
        return check_out(reader, top, into, clock, bounds, large_files=large_files)


def fetch_within_one(found: Mapping[str, Found], into: Path, clock: Clock, *, large_files: Handling = "refuse") -> None:
    """Write each tree into a folder of its name, all of them within the bounds of one.

    Raises:
        RequestRejectedError: together they break a bound, or one holds what a checkout must not hold.
    """
    left: CheckoutBounds | None = None
    for name, one in found.items():
        (into / name).mkdir(mode=0o700)
        left = fetch(one, into / name, clock, left, large_files=large_files)
