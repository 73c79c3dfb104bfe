"""Open the bus a command talks to: a route may have to be refused, and is no destination until it proves its id.

A committed file is written by whoever can push: it may name an id, or a remote this clone has, never a new place.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

from bridge.client.clone.config import BusChoice, ClientSettings
from bridge.client.clone.store import Sent, Store
from bridge.client.connection.session import BusSession, bus_state, identify
from bridge.errors import RemoteError, UsageError
from bridge.system.clock import Clock


def open_session(settings: ClientSettings, clock: Clock, sent: Sent | None = None) -> BusSession:
    """Return a session on the configured bus; the embedded one is made when it is not there yet.

    Args:
        settings: the clone and its configuration.
        clock: for all that is timed.
        sent: the run that is looked at next, where this clone sent it: one call then lists both bus and run.

    Raises:
        BusMissingError: the remote carries no bus.
        WrongBusError: the remote carries another bus than the pinned one.
        RemoteError: unreachable; a configured bus never becomes the embedded one.
    """
    if settings.bus.embedded:
        from bridge.client.connection import embedded

        return embedded.open_session(settings, clock)
    from bridge.bus import open_requester_bus
    from bridge.client.connection.pins import RootReader
    from bridge.system.gitobjects import committer_from
    from bridge.trust.key_seals import KeySeals

    choice = check_route(settings)
    route = choice.route
    if route is None:  # check_route has answered with one, or raised
        raise RemoteError("no route to the bus is configured", remedy="kakeya-mac init --bus ROUTE")
    repository = settings.repository.top if settings.repository is not None else None
    folder = bus_state(settings, route)
    by = committer_from(settings.identity.committer, settings.identity.message_prefix)
    bus = open_requester_bus(
        route, repository=repository, state=folder, clock=clock, expect_id=choice.bus_id, committer=by
    )
    if sent is not None:
        bus.foresee(sent.id, sent.ref)
    else:
        bus.foresee_runners()
    roots = RootReader(settings, bus.route)
    bus.use_root(roots.judge)
    opened_s = clock.steady_s()
    record = identify(bus, choice)
    session = BusSession(
        settings, bus, record, Store(settings.state_dir), clock, bus_folder=folder, roots=roots, opened_s=opened_s
    )
    bus.use_seals(KeySeals(lambda: session.pins().authority))
    return session


def check_route(settings: ClientSettings) -> BusChoice:
    """Return the bus choice with a route that may be used.

    Raises:
        UsageError: a committed file names a place that is no remote of this clone, or a pinned id has no route.
    """
    choice = settings.bus
    if choice.route is not None and choice.source != "committed":
        return choice
    from bridge.bus.store.route import check_owner
    from bridge.client.clone.configuration import remotes

    top = settings.repository.top if settings.repository is not None else None
    urls = {} if top is None else remotes(top)
    if top is not None and not urls:
        check_owner(top)
    if choice.route is None:
        choice = replace(choice, route=_only_remote(choice, urls))
    elif choice.source == "committed" and choice.route not in urls and choice.route not in urls.values():
        raise UsageError(
            f"{choice.where} is committed and names {choice.route!r}, which is no remote of this clone",
            remedy=f"if you trust it, once: kakeya-mac init --bus {shlex.quote(choice.route)}",
        )
    return choice


def _only_remote(choice: BusChoice, urls: dict[str, str]) -> str:
    if "origin" in urls:
        return "origin"
    if len(urls) == 1:
        return next(iter(urls))
    raise UsageError(
        f"{choice.where} pins a bus id and no route, and this clone has {len(urls)} remotes",
        remedy="kakeya-mac init --bus ROUTE",
    )
