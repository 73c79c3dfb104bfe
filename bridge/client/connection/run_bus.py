"""Which bus a run belongs to: a clone may pin one bus and have sent a run to another.

Goes only by what this clone wrote down when it sent the run, never by what a result says of itself: naming a bus
chooses whose keys count. An option or variable that names a bus is obeyed.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from bridge.bus.open.embedded import embedded_route
from bridge.client.clone.config import BusChoice, ClientSettings
from bridge.client.clone.run_ids import resolve
from bridge.client.clone.store import Sent, Store
from bridge.errors import RunNotFoundError, UsageError
from bridge.trust.keyring import PUBLIC_FILE


def settings_of_run(settings: ClientSettings, text: str) -> ClientSettings:
    """Return settings on this machine's own bus where this clone sent the run there, else the same settings.

    Args:
        settings: as the configuration has them.
        text: what was typed for a run: an id, a part of one, ``@last``.
    """
    sent = sent_from(settings, text)
    if sent is None or settings.bus.embedded or settings.bus.source in {"--bus", "KAKEYA_BUS"}:
        return settings
    if not is_own(settings, sent):
        return settings
    return replace(settings, bus=BusChoice("embedded", f"this clone sent {sent.id} there"))


def is_own(settings: ClientSettings, sent: Sent | None) -> bool:
    """Return whether a run was sent to the embedded bus of this installation."""
    return sent is not None and sent.route == str(embedded_route(settings.data_dir))


def pinned_bus(settings: ClientSettings) -> str | None:
    """Return the bus whose keys count when none is asked; None where no id is pinned, or on this machine's own."""
    return None if settings.bus.embedded else settings.bus.bus_id


def require_same_bus(settings: ClientSettings, run_id: str, bus_id: str | None, command: str) -> None:
    """Refuse to answer by one bus about a run that this clone sent to another.

    Args:
        settings: as the command uses them.
        run_id: the run.
        bus_id: the bus that is asked or whose keys are pinned; None when that is not known.
        command: its name, for the remedy.

    Raises:
        UsageError: it did; the message names both buses, the remedy the command that asks the right one.
    """
    sent = Store(settings.state_dir).sent(run_id)
    if sent is None or bus_id is None or sent.bus_id == bus_id:
        return
    words = ["kakeya-mac", *command.split(), run_id, "--bus", f"{sent.route}#{sent.bus_id}"]
    place = settings.bus.route or "the embedded bus"
    raise UsageError(
        f"this clone sent {run_id} to the bus {sent.route} ({sent.bus_id[:8]}); "
        f"looked on {place} ({bus_id[:8]}, from {settings.bus.where})",
        remedy=shlex.join(words) + _key_option(sent),
    )


def _key_option(sent: Sent) -> str:
    """Return how to name the key, where the run is on the embedded bus of another installation of this user."""
    folder = Path(sent.route).parent
    if folder.parent.name != "embedded":
        return ""
    where = folder / "runner" / PUBLIC_FILE
    return f" --runner-key NAME=KEY, with name and key in {where}; or use the installation that sent it"


def sent_from(settings: ClientSettings, text: str | None) -> Sent | None:
    """Return what this clone remembers of sending a run, None when it did not send it or no one run is meant."""
    if text is None:
        return None
    store = Store(settings.state_dir)
    try:
        return store.sent(resolve(text, store.ids(), tuple))
    except (RunNotFoundError, UsageError):
        return None
