"""Make a new bus: its record, and a repository on this machine that carries it."""

from __future__ import annotations

import os
from pathlib import Path

from bridge.bus.identity.bus_record import BusIdentity
from bridge.bus.refs import names
from bridge.bus.refs.spaces import DEFAULT_PATTERNS
from bridge.bus.store.git import GitStore
from bridge.bus.store.route import Route
from bridge.errors import BusMissingError
from bridge.limits import BEACON_INTERVAL_HOSTED_S, BEACON_INTERVAL_LOCAL_S, LEASE_MAX_S
from bridge.records.bus import BusRecord, Wake
from bridge.system.clock import Clock, rfc3339
from bridge.system.gitrepository import BareRepository

MINIMUM_CLIENT = "0.1.0"


def new_record(clock: Clock, *, wake: Wake, local: bool, entropy: bytes | None = None) -> BusRecord:
    """Return the record of a new bus with a random id.

    Args:
        clock: for the time of creation.
        wake: what makes its runners look.
        local: whether pushes cost nothing there, so that beacons may come often.
        entropy: 16 random bytes; tests pass their own.
    """
    return BusRecord(
        bus_id=(os.urandom(16) if entropy is None else entropy).hex(),
        wake=wake,
        request_form="workload" if wake == "actions" else "manifest",
        request_branches=DEFAULT_PATTERNS,
        prefix=names.DEFAULT_PREFIX,
        attestation="none",
        lease_s=LEASE_MAX_S,
        beacon_interval_s=BEACON_INTERVAL_LOCAL_S if local else BEACON_INTERVAL_HOSTED_S,
        minimum_client=MINIMUM_CLIENT,
        created=rfc3339(clock.now()),
    )


def ensure_repository(path: Path, clock: Clock) -> BareRepository:
    """Make a repository and the bus record in it unless they are there, for its user only; return the repository."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    repository = BareRepository(path)
    repository.create()
    identity = BusIdentity(GitStore(Route(str(path), str(path), (), is_local=True), path.parent / "maker"), None, None)
    try:
        identity.record()
    except BusMissingError:
        identity.create_if_missing(new_record(clock, wake="embedded", local=True))
    return repository
