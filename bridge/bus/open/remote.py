"""Put a git bus together: route, store, push budget, protocol.

Knows nothing about who opens it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from bridge.bus.refbus import RefBus
from bridge.bus.store.git import GitStore, read_clone
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import resolve
from bridge.limits import PUSHES_PER_MINUTE_HOSTED
from bridge.system.clock import Clock


def open_git_bus(
    route: str, *, repository: Path | None, state: Path, clock: Clock, expect_id: str | None, budget: Path | None
) -> RefBus:
    """Open a bus over git; see `bridge.bus.open_bus`.

    Raises:
        UsageError: the route leads nowhere.
        BusError: the clone's configuration sends pushes elsewhere.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = resolve(route, repository, state)
    clone = None if repository is None else read_clone(repository)
    store = GitStore(found, state, clone)
    counted = None if found.is_local else budget or _shared_budget(found.shown)
    return RefBus(store, clock=clock, pacer=Pacer(counted, PUSHES_PER_MINUTE_HOSTED, clock), expect_id=expect_id)


def _shared_budget(url: str) -> Path:
    import platformdirs

    return platformdirs.user_state_path("kakeya") / "pushes" / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"
