"""An open bus as a command uses it: its record, what this clone remembers of it, and which bus it must be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.bus.interface import RequesterBus, SharedBus
from bridge.bus.views import RunView
from bridge.client.clone.config import BusChoice, ClientSettings
from bridge.client.clone.run_ids import resolve
from bridge.client.clone.store import Store
from bridge.client.document.envelope import BusPart
from bridge.errors import BusMissingError, WrongBusError
from bridge.ids import is_id
from bridge.records import BusRecord
from bridge.system.clock import Clock

_ARCHIVED_MAX_COUNT: Final = 10_000  # archived runs that are looked through for a part of an id


@dataclass(frozen=True)
class BusSession:
    """An open bus, what it says of itself, and what this clone remembers.

    Attributes:
        wake_runner: starts the embedded runner if none holds its lock; None on any other bus.
        runner_words: the last line that the embedded runner said; None on any other bus.
        bus_folder: where this bus keeps repositories of its own; None where it has none.
    """

    settings: ClientSettings
    bus: RequesterBus
    record: BusRecord
    store: Store
    clock: Clock
    wake_runner: Callable[[], bool] | None = None
    bus_folder: Path | None = None
    runner_words: Callable[[], str] | None = None

    @property
    def embedded(self) -> bool:
        """Whether runs happen on this machine."""
        return self.settings.bus.embedded

    def bus_part(self) -> BusPart:
        """Return the bus as `--json` shows it."""
        choice = self.settings.bus
        return BusPart(id=self.record.bus_id, route=self.bus.route, source=choice.source, where=choice.where)

    def bus_line(self) -> str:
        """Return the bus as people read it."""
        if self.embedded:
            return "embedded: runs on THIS machine; another: kakeya-mac init --bus ROUTE"
        choice = self.settings.bus
        pin = "" if choice.bus_id is not None else f"; not pinned: kakeya-mac init --bus {choice.route}"
        return f"{self.bus.route} ({self.record.bus_id[:8]}, from {choice.where}){pin}"

    def find(self, text: str) -> str:
        """Return the run id that a text means, asking this clone first, then the bus, then its archives."""
        further = [self._ids_on_bus] if self.embedded else [self._ids_on_bus, self._archived_ids]
        return resolve(text, self.store.ids(), *further)

    def view(self, run_id: str) -> RunView:
        """Return what the bus shows of a run; one that was sent from here costs the same on a full bus."""
        sent = self.store.sent(run_id)
        if sent is not None and sent.bus_id == self.record.bus_id:
            self.bus.remember(run_id, sent.ref)
        return self.bus.view(run_id)

    def _ids_on_bus(self) -> set[str]:
        seen = self.bus.snapshot()
        return {run_id for run_id in (*(ref.id for ref in seen.requests), *seen.claims) if is_id(run_id)}

    def _archived_ids(self) -> set[str]:
        return {one.tip.claim.id for one in islice(self.bus.archived(), _ARCHIVED_MAX_COUNT)}


def identify(bus: SharedBus, choice: BusChoice) -> BusRecord:
    """Return the bus record, refused when it is not the pinned bus.

    Raises:
        BusMissingError: the remote carries no bus.
        WrongBusError: another bus; perhaps a fork.
    """
    try:
        record = bus.identity()
    except BusMissingError as error:
        raise BusMissingError(
            f"{bus.route} carries no bus (configured by {choice.where})",
            remedy="on the host, once: kakeya-runner setup --bus ROUTE --create-bus; or kakeya-mac run --bus embedded",
        ) from error
    if choice.bus_id is not None and record.bus_id != choice.bus_id:
        raise WrongBusError(
            f"{bus.route} carries bus {record.bus_id}, but {choice.where} pins {choice.bus_id}; is it a fork?",
            remedy="point the route at the right repository, or pin anew: kakeya-mac init --bus ROUTE",
        )
    return record


def bus_state(settings: ClientSettings, route: str) -> Path:
    """Return the folder of a bus's own control repository, one per route."""
    return settings.state_dir / "bus" / hashlib.sha256(route.encode()).hexdigest()[:16]
