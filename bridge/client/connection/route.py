"""Is the configured route one that may be used at all: asked before anything is opened.

A committed file is written by whoever can push: it may name an id, or a remote this clone has, never a new place.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.client.clone import git_door as gitdoor
from bridge.client.clone.config import BusChoice, ClientSettings
from bridge.errors import UsageError


def check_route(settings: ClientSettings) -> BusChoice:
    """Return the bus choice with a route that may be used.

    Raises:
        UsageError: a committed file names a place that is no remote of this clone, or a pinned id has no route.
    """
    choice = settings.bus
    if choice.route is not None and choice.source != "committed":
        return choice
    top = settings.repository.top if settings.repository is not None else None
    known = gitdoor.remotes(top) if top is not None else {}
    if choice.route is None:
        choice = replace(choice, route=_only_remote(choice, known))
    elif choice.source == "committed" and choice.route not in known and choice.route not in known.values():
        raise UsageError(
            f"{choice.where} is committed and names {choice.route!r}, which is no remote of this clone",
            remedy=f"if you trust it, once: kakeya-mac init --bus {choice.route}",
        )
    return choice


def _only_remote(choice: BusChoice, known: dict[str, str]) -> str:
    if "origin" in known:
        return "origin"
    if len(known) == 1:
        return next(iter(known))
    raise UsageError(
        f"{choice.where} pins a bus id and no route, and this clone has {len(known)} remotes",
        remedy="kakeya-mac init --bus ROUTE",
    )
