"""What this clone's name may still ask within the hour, as the runners' signs of life say.

The words are the runners', a few minutes old at most while they work. A request that is too many is not refused: it
waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.client.clone.config import OFF
from bridge.errors import InfrastructureError
from bridge.records.bus import ANYBODY
from bridge.request import UNSIGNED
from bridge.system.clock import parse_rfc3339

if TYPE_CHECKING:
    from bridge.client.connection.liveness import SeenRunner
    from bridge.client.connection.session import BusSession
    from bridge.client.document.envelope import QuotaPart
    from bridge.records import QuotaUse


def quotas_of(session: BusSession) -> list[QuotaPart]:
    """Return what is left of this clone's share on each live runner that bounds it, as `--json` shows it."""
    from bridge.client.document.envelope import QuotaPart

    name = asks_as(session)
    return [
        QuotaPart(
            principal=name,
            runner=one.beacon.runner,
            per_hour=use.per_hour,
            left=use.left,
            next=use.next,
            as_of=one.beacon.time,
        )
        for one, use in _uses(session, name)
    ]


def used_up(session: BusSession) -> str | None:
    """Return in words that no runner takes more of this clone's name now; None while one does, or none bounds it."""
    uses = _uses(session, asks_as(session))
    free = [use for _, use in uses if use.left or use.next is None or parse_rfc3339(use.next) <= session.clock.now()]
    if not uses or free:
        return None
    one, use = min(uses, key=lambda found: found[1].next or "")
    who = "unsigned requests have" if use.principal == UNSIGNED else f"{use.principal} has"
    return f"{who} used up the {use.per_hour} an hour that {one.beacon.runner} takes; the next from {use.next}"


def asks_as(session: BusSession) -> str:
    """Return the name that requests from this clone count against."""
    choice = session.settings.signing
    return UNSIGNED if choice is None or choice.key == OFF or session.embedded else choice.principal


def _uses(session: BusSession, name: str) -> list[tuple[SeenRunner, QuotaUse]]:
    """Return the share of a name on each live runner; none on this machine's own bus, or where the bus is silent."""
    if session.embedded:
        return []
    try:
        runners = [one for one in session.runners() if one.live]
    except InfrastructureError:  # what is left is said beside an answer, and is no reason to withhold it
        return []
    found = []
    for one in runners:
        said = {use.principal: use for use in one.beacon.quotas}
        use = said.get(name) or (None if name == UNSIGNED else said.get(ANYBODY))
        if use is not None:
            found.append((one, use))
    return found
