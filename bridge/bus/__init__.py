"""Transports that carry the same records: any git remote, or the embedded bus on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.bus.refbus import RefBus
    from bridge.bus.sides.requester import RequesterBus
    from bridge.bus.sides.shared import SharedBus
    from bridge.system.clock import Clock
    from bridge.system.gitobjects import Committer

B = TypeVar("B", bound="SharedBus")

__all__ = ["open_bus", "open_requester_bus"]


def open_bus(
    route: str,
    *,
    repository: Path | None,
    state: Path,
    clock: Clock,
    expect_id: str | None = None,
    budget: Path | None = None,
    committer: Committer | None = None,
    borrows: bool = True,
) -> RefBus:
    """Open a bus for both sides; nothing is sent or checked before the first call.

    Args:
        route: the name of a remote of `repository`, a path, or a file, ssh or https URL.
        repository: the user's clone, read for workloads and transport configuration, never written; or None.
        state: a folder for this bus's own repositories and caches.
        clock: the machine's clocks.
        expect_id: the pinned bus id, or None for a first contact.
        budget: the file in which the runners of this host count their pushes; None for the user's own.
        committer: who makes the commits of this side; None for the usual one.
        borrows: whether what the clone has counts as here; a shallow one has no history.

    Raises:
        UsageError: the route leads nowhere.
        BusError: the clone's configuration sends pushes elsewhere.
    """
    from bridge.bus.refbus import RefBus

    return _opened(
        RefBus, route, repository=repository, state=state, clock=clock, expect_id=expect_id, budget=budget,
        committer=committer, borrows=borrows,
    )  # fmt: skip


def open_requester_bus(
    route: str,
    *,
    repository: Path | None,
    state: Path,
    clock: Clock,
    expect_id: str | None = None,
    committer: Committer | None = None,
) -> RequesterBus:
    """Open a bus for a requester, without what a runner needs of it; see `open_bus`."""
    from bridge.bus.sides.requester import RequesterBus

    return _opened(
        RequesterBus, route, repository=repository, state=state, clock=clock, expect_id=expect_id,
        committer=committer,
    )  # fmt: skip


def _opened(
    kind: type[B],
    route: str,
    *,
    repository: Path | None,
    state: Path,
    clock: Clock,
    expect_id: str | None,
    budget: Path | None = None,
    committer: Committer | None = None,
    borrows: bool = True,
) -> B:
    """Return a bus over git, with what this host keeps of it in files of its own."""
    import hashlib

    from bridge.bus.store.git import GitStore
    from bridge.bus.store.push_budget import Pacer
    from bridge.bus.store.quarantine import Quarantine
    from bridge.bus.store.route import resolve
    from bridge.bus.store.user_clone import read_clone
    from bridge.limits import PUSHES_PER_MINUTE_HOSTED
    from bridge.system.gitobjects import KAKEYA

    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    place = resolve(route, repository, state)
    clone = None if repository is None or not borrows else read_clone(repository)
    store = GitStore(place, state, clone, committer=committer or KAKEYA)
    if not place.is_local and budget is None:
        import platformdirs

        name = f"{hashlib.sha256(place.shown.encode()).hexdigest()[:16]}.json"
        budget = platformdirs.user_state_path("kakeya") / "pushes" / name
    pacer = Pacer(None if place.is_local else budget, PUSHES_PER_MINUTE_HOSTED, clock, store.is_near)
    quarantine = Quarantine(state / "quarantine.jsonl", clock)
    return kind(
        store, clock=clock, pacer=pacer, expect_id=expect_id, quarantine=quarantine, beacons_file=state / "beacons"
    )  # fmt: skip
