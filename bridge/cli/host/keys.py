"""`kakeya-runner keygen`, and what serving does about keys: sign where the bus signs, say plainly where it does not."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable

from bridge.bus.interface import RunnerBus
from bridge.errors import UsageError, install_remedy
from bridge.records import BusRecord
from bridge.runner.state.attestations import enrolled, ensure_key, newest
from bridge.runner.state.folder import StateFolder
from bridge.trust import runner_key as keys
from bridge.trust.attestation import is_available, key_id
from bridge.trust.keyring import pin

Say = Callable[[str], None]
UNSIGNED = "results of this bus are unsigned: they prove integrity, not origin"


def keygen(arguments: argparse.Namespace, state: StateFolder, name: str, bus: RunnerBus | None, say: Say) -> int:
    """Make or rotate the runner's key, print its public half, and write it into the bus record when a bus is named.

    Raises:
        UsageError: the packages are missing, or there is a key already and nobody asked to rotate it.
    """
    if not is_available():
        raise UsageError("the packages that sign are not installed", remedy=install_remedy("trust"))
    if arguments.rotate:
        record = keys.rotate(state.root, name)
    elif bus is not None and (state.root / keys.KEY_FILE).exists():
        keys.publish_as(state.root, name)
        record = newest(state.root)  # there is one already, and it is only to be named on a bus
    else:
        record = keys.generate(state.root, name)
    print(pin(record))
    say(f"key {key_id(record.public)[:16]} of {name}, private half in {state.root / keys.KEY_FILE} (mode 600)")
    if bus is not None:
        enrol(bus, state, name, say, sign=True)
    say(f"requesters pin it with: kakeya-mac init --runner-key {pin(record)}")
    return 0


def signed(record: BusRecord, state: StateFolder, say: Say) -> BusRecord:
    """Return the record of a new bus: it signs its results when this runner has a key."""
    changed = enrolled(record, state.root, sign=True)
    if changed.attestation == "none":
        say(f"{UNSIGNED}; to sign them, {install_remedy('trust')}, then kakeya-runner keygen")
    else:
        say(f"its results are signed; requesters pin: kakeya-mac init --runner-key {pin(newest(state.root))}")
    return changed


def enrol(bus: RunnerBus, state: StateFolder, name: str, say: Say, *, sign: bool = False) -> None:
    """Bring the bus record up to this runner's keys, under its name; nothing is written when it is.

    Raises:
        UsageError: the bus signs its results and this runner cannot.
    """
    keys.publish_as(state.root, name)
    record = bus.identity()
    changed = enrolled(record, state.root, sign=sign)
    if changed != record:
        bus.update(changed)
        say(f"{bus.route} names key {key_id(newest(state.root).public)[:16]} now")
    elif record.attestation == "none" and (state.root / keys.KEY_FILE).exists() and is_available():
        say(f"results are signed, and the bus does not say so: kakeya-runner keygen --bus {bus.route}")
    elif record.attestation == "none":
        say(UNSIGNED)


def enrol_own(bus: RunnerBus, state: StateFolder, name: str, say: Say) -> None:
    """Make a key for a bus of this machine's own on first use, and sign from then on; without the packages, say so."""
    if bus.identity().attestation == "none":
        ensure_key(state.root, name)
    enrol(bus, state, name, say, sign=True)


def own_name() -> str:
    """Return the name of a runner that was given none: the machine's."""
    letters = (char if char.isalnum() or char in ".-" else "-" for char in socket.gethostname().lower())
    return "".join(letters).strip("-.")[:60] or "runner"
