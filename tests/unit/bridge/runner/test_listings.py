"""What each listing of a runner shows: all, the last days, or the last minutes and what has not ended."""

from __future__ import annotations

import itertools

from bridge.bus.views import ListingWindow, RequestRef, Snapshot
from bridge.ids import new_id
from bridge.limits import (
    LISTING_DAYS_EVERY_S,
    LISTING_OPEN_COUNT,
    LISTING_SMALL_BYTES,
    LISTING_WHOLE_EVERY_S,
    LISTING_WHOLE_FIRST_S,
)
from bridge.runner.connection.listings import Listings
from tests.fakes.bus_actors import FakeClock

POLL_S = 15.0


def requests(count: int) -> tuple[RequestRef, ...]:
    ids = [new_id(number, bytes(10)) for number in range(count)]
    return tuple(RequestRef(run_id, f"refs/heads/mac-bridge/mlx-env-probe-{run_id}", "0" * 40) for run_id in ids)


def poll(listings: Listings, waiting: tuple[RequestRef, ...], size: int) -> ListingWindow | None:
    """List once; return the window."""
    window = listings.next_window()
    listings.listed(window, Snapshot(waiting, {}, frozenset(), {}, bytes_received=size))
    return window


def kinds(listings: Listings, clock: FakeClock, seconds: float, waiting: int = 0, size: int = 10**6) -> list[str]:
    """Poll so long; return what each listing showed."""
    shown = []
    for _ in range(int(seconds / POLL_S)):
        window = poll(listings, requests(waiting), size)
        shown.append("all" if window is None else "minutes" if window.fresh else "days")
        clock.advance(POLL_S)
    return shown


def test_of_a_large_bus_most_listings_show_the_last_minutes() -> None:
    clock = FakeClock()
    shown = kinds(Listings(("p",), tuple, clock, local=False), clock, LISTING_WHOLE_EVERY_S)
    first = int(-(-LISTING_WHOLE_FIRST_S // POLL_S))
    assert shown[: first + 2] == ["days", *["minutes"] * (first - 1), "all", "days"]
    assert shown.count("all") == 1
    assert shown.count("days") <= LISTING_WHOLE_EVERY_S / LISTING_DAYS_EVERY_S + 1
    gaps = [at for at, kind in enumerate(shown) if kind == "days"]
    assert max(later - sooner for sooner, later in itertools.pairwise(gaps)) * POLL_S <= LISTING_DAYS_EVERY_S


def test_a_small_bus_and_one_of_this_machine_show_all() -> None:
    clock = FakeClock()
    small = kinds(Listings(("p",), tuple, clock, local=False), clock, 3600.0, size=LISTING_SMALL_BYTES)
    assert set(small[2:]) == {"all"}
    assert set(kinds(Listings(("p",), tuple, clock, local=True), clock, 600.0)) == {"all"}


def test_what_has_not_ended_is_listed_by_its_name_and_very_many_with_the_days() -> None:
    clock = FakeClock()
    open_requests = requests(LISTING_OPEN_COUNT)
    listings = Listings(("p",), lambda: (open_requests[0].id, "elsewhere"), clock, local=False)
    assert poll(listings, open_requests, 10**6).refs == ()
    window = poll(listings, open_requests, 10**6)
    assert window.fresh
    assert window.refs == tuple(request.ref for request in open_requests)
    assert window.runs == ("elsewhere",)
    many = Listings(("p",), tuple, clock, local=False)
    assert set(kinds(many, clock, LISTING_WHOLE_FIRST_S, waiting=LISTING_OPEN_COUNT + 1)) == {"days"}
