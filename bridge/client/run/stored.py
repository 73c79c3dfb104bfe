"""Results that are here already: a finished run's answer does not change, so no bus is asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bridge.client.clone.config import ClientSettings
from bridge.client.clone.run_ids import resolve
from bridge.client.clone.store import Store
from bridge.client.document.envelope import BusPart
from bridge.client.run.status import RunStatus, standing_of_stored
from bridge.errors import IntegrityError, RunNotFoundError


class Origin(Protocol):
    """Where a standing is known from: an open session, or the store of this clone."""

    @property
    def settings(self) -> ClientSettings:
        """Where the command works, and on which bus."""
        ...

    @property
    def embedded(self) -> bool:
        """Whether it ran on this machine."""
        ...

    def bus_part(self) -> BusPart:
        """Return the bus as `--json` shows it."""
        ...


@dataclass(frozen=True)
class StoredOrigin:
    """The store of this clone; `bus_id` is what the result says."""

    settings: ClientSettings
    bus_id: str | None

    @property
    def embedded(self) -> bool:
        """Whether it ran on this machine."""
        return self.settings.bus.embedded

    def bus_part(self) -> BusPart:
        """Return the bus as `--json` shows it."""
        choice = self.settings.bus
        return BusPart(id=self.bus_id, route=choice.route, source=choice.source, where=choice.where)


def find_stored(settings: ClientSettings, text: str) -> tuple[StoredOrigin, RunStatus] | None:
    """Return the standing of a run whose intact result is stored here; None means that the bus has to be asked."""
    store = Store(settings.state_dir)
    try:
        run_id = resolve(text, store.ids(), tuple)
        standing = standing_of_stored(store, run_id)
    except (RunNotFoundError, IntegrityError):
        return None
    if standing is None or standing.result is None:
        return None
    return StoredOrigin(settings, standing.result.manifest.bus_id), standing
