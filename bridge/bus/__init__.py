"""Transports that carry the same records: any git remote, or the embedded bus on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.bus.refbus import RefBus
    from bridge.system.clock import Clock

__all__ = ["open_bus"]


def open_bus(
    route: str,
    *,
    repository: Path | None,
    state: Path,
    clock: Clock,
    expect_id: str | None = None,
    budget: Path | None = None,
) -> RefBus:
    """Open a bus; nothing is sent or checked before the first call.

    Args:
        route: the name of a remote of `repository`, a path, or a file, ssh or https URL.
        repository: the user's clone, read for workloads and transport configuration, never written; or None.
        state: a folder for this bus's own repositories and caches.
        clock: the machine's clocks.
        expect_id: the pinned bus id, or None for a first contact.
        budget: the file in which the runners of this host count their pushes; None for the user's own.

    Raises:
        UsageError: the route leads nowhere.
        BusError: the clone's configuration sends pushes elsewhere.
    """
    from bridge.bus.open.remote import open_git_bus

    return open_git_bus(route, repository=repository, state=state, clock=clock, expect_id=expect_id, budget=budget)
