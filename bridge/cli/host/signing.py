"""What a runner does about keys: sign where the bus signs, own a new bus, say plainly where results are unsigned."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable

from bridge.bus.sides.runner import RunnerBus
from bridge.records.bus import BusRecord
from bridge.runner.state.attestations import enrolled, ensure_key, newest
from bridge.runner.state.folder import StateFolder
from bridge.system.clock import Clock
from bridge.trust import runner_key as keys
from bridge.trust.keyring import pin
from bridge.trust.signing_key import key_id

Say = Callable[[str], None]
UNSIGNED = "results of this bus are unsigned: they prove integrity, not origin"


def pin_line(route: str, state: StateFolder) -> str:
    """Return the line with which requesters pin a bus: by its owner's key where that is known here, else by ours.

    Args:
        route: of the bus, with its id where that is known.
        state: the runner's folder; its key is left out where it has none.
    """
    from bridge.runner.connection.known_keys import ROOTS_FOLDER
    from bridge.runner.policy.file import owner_folder
    from bridge.trust.root_memory import RootMemory

    folder, bus_id = owner_folder(os.environ), route.partition("#")[2]
    owns = any((folder / f"{bus_id}{end}").exists() for end in (".key", ".pub"))
    memory = RootMemory(folder if owns else state.identity / ROOTS_FOLDER)
    recalled = memory.recall(bus_id) if bus_id else None
    words = [] if recalled is None else ["--root-key", recalled.root.owner]
    if recalled is None and keys.has_key(state.identity):
        words = ["--runner-key", pin(newest(state.identity))]
    return shlex.join(["kakeya-mac", "init", "--bus", route, *words])


def own(bus: RunnerBus, state: StateFolder, name: str, say: Say, clock: Clock) -> None:
    """Own a new bus with a key of this account, and list this runner's key; the owner's key is no runner's business."""
    from bridge.runner.maintenance.owner import BusOwner
    from bridge.runner.policy.file import owner_folder

    if os.environ.get("INVOCATION_ID") or "kakeya" in os.environ.get("XPC_SERVICE_NAME", ""):  # systemd, launchd
        say("nobody owns this bus yet: in your own account, not the service's: kakeya-runner trust init --bus ROUTE")
        return
    owner = BusOwner(bus, owner_folder(os.environ), clock)
    root = owner.make((newest(state.identity).evolve(name=name),))
    say(owner.backup_line(root.bus_id))


def signed(record: BusRecord, state: StateFolder, say: Say) -> BusRecord:
    """Return the record of a new bus: it signs its results when this runner has a key."""
    changed = enrolled(record, state.identity, sign=True)
    if changed.attestation == "none":
        say(f"{UNSIGNED}; to sign them: kakeya-runner keygen")
    return changed


def enrol(bus: RunnerBus, state: StateFolder, name: str, say: Say, *, sign: bool = False) -> None:
    """Bring the bus record up to this runner's keys, under its name; nothing is written when it is.

    Raises:
        UsageError: the bus signs its results and this runner cannot.
    """
    keys.publish_as(state.identity, name)
    record = bus.identity()
    changed = enrolled(record, state.identity, sign=sign)
    if bus.root_tip is not None:
        return  # the bus's owner says whose key is whose
    if changed != record:
        bus.update(changed)
        say(f"{bus.route} names key {key_id(newest(state.identity).public)[:16]} now")
    elif record.attestation == "none" and keys.has_key(state.identity):
        say(f"results are signed, and the bus does not say so: kakeya-runner keygen --bus {shlex.quote(bus.route)}")
    elif record.attestation == "none":
        say(UNSIGNED)


def enrol_own(bus: RunnerBus, state: StateFolder, name: str, say: Say) -> None:
    """Make a key for a bus of this machine's own on first use, and sign from then on."""
    if bus.identity().attestation == "none":
        ensure_key(state.identity, name)
    enrol(bus, state, name, say, sign=True)


def own_name() -> str:
    """Return the name of a runner that was given none: the machine's."""
    letters = (char if char.isalnum() or char in ".-" else "-" for char in socket.gethostname().lower())
    return "".join(letters).strip("-.")[:60] or "runner"
