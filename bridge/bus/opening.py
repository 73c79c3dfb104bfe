"""Put a git bus together: route, store, push budget, protocol.

Knows nothing about who opens it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from bridge.bus.gitstore import GitStore, UserClone
from bridge.bus.pacing import Pacer
from bridge.bus.refbus import RefBus
from bridge.bus.route import resolve
from bridge.errors import UsageError
from bridge.limits import PUSHES_PER_MINUTE_HOSTED
from bridge.system.clock import Clock
from bridge.system.git import run_in_work_tree


def open_git_bus(
    route: str, repository: Path | None, state: Path, clock: Clock, expect_id: str | None, budget: Path | None
) -> RefBus:
    """Open a bus over git; see `bridge.bus.open_bus`.

    Raises:
        UsageError: the route leads nowhere.
        BusError: the clone's configuration sends pushes elsewhere.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = resolve(route, repository, state)
    clone = None if repository is None else user_clone(repository)
    store = GitStore(found, state, clone)
    counted = None if found.is_local else budget or _shared_budget(found.shown)
    return RefBus(store, clock=clock, pacer=Pacer(counted, PUSHES_PER_MINUTE_HOSTED, clock), expect_id=expect_id)


def user_clone(repository: Path) -> UserClone:
    """Return what is read of the user's clone, linked work trees included.

    Raises:
        UsageError: it is no git repository.
    """
    asked = ["rev-parse", "--git-path", "objects", "--git-path", "shallow"]
    finished = run_in_work_tree(repository, asked)
    lines = finished.stdout.decode("utf-8", "replace").splitlines()
    if finished.exit_code != 0 or len(lines) != 2:
        raise UsageError(f"{repository} is no git repository")
    return UserClone(objects=(repository / lines[0]).resolve(), shallow=(repository / lines[1]).resolve())


def _shared_budget(url: str) -> Path:
    import platformdirs

    return platformdirs.user_state_path("kakeya") / "pushes" / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"
