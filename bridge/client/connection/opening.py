"""Open the bus a command talks to: a route is not a destination until it proves its id."""

from __future__ import annotations

from bridge.client.clone.config import ClientSettings
from bridge.client.clone.store import Store
from bridge.client.connection.session import BusSession, bus_state, identify
from bridge.errors import RemoteError
from bridge.system.clock import Clock


def open_session(settings: ClientSettings, clock: Clock) -> BusSession:
    """Return a session on the configured bus; the embedded one is made when it is not there yet.

    Raises:
        BusMissingError: the remote carries no bus.
        WrongBusError: the remote carries another bus than the pinned one.
        RemoteError: unreachable; a configured bus never becomes the embedded one.
    """
    if settings.bus.embedded:
        from bridge.client.connection import embedded

        return embedded.open_session(settings, clock)
    from bridge.bus import open_bus
    from bridge.client.connection.pins import pins
    from bridge.client.connection.route import check_route
    from bridge.client.connection.seals import PinnedSeals

    choice = check_route(settings)
    route = choice.route
    if route is None:  # check_route has answered with one, or raised
        raise RemoteError("no route to the bus is configured", remedy="kakeya-mac init --bus ROUTE")
    repository = settings.repository.top if settings.repository is not None else None
    folder = bus_state(settings, route)
    bus = open_bus(route, repository=repository, state=folder, clock=clock, expect_id=choice.bus_id)
    record = identify(bus, choice)
    bus.use_seals(PinnedSeals(lambda: pins(settings, record=record)))
    return BusSession(settings, bus, record, Store(settings.state_dir), clock, bus_folder=folder)
