"""What this clone's name may still ask within the hour, as the runners' signs of life say.

The words are the runners', a few minutes old at most while they work. A request that is too many is not refused: it
waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.client.clone.config import OFF
from bridge.client.document.parts import QuotaPart
from bridge.errors import InfrastructureError
from bridge.records.bus import ANYBODY
from bridge.request import UNSIGNED
from bridge.system.clock import parse_rfc3339

if TYPE_CHECKING:
    from bridge.client.connection.liveness import SeenRunner
    from bridge.client.connection.session import BusSession
    from bridge.records.bus import QuotaUse
    from bridge.records.request import RunnerSelector


def quotas_of(session: BusSession) -> list[QuotaPart]:
    """Return what is left of this clone's share on each live runner that bounds it, as `--json` shows it."""
    name = asks_as(session)
    return [
        QuotaPart(
            principal=name,
            runner=runner.beacon.runner,
            per_hour=use.per_hour,
            left=use.left,
            next=use.next,
            as_of=runner.beacon.time,
        )
        for runner in _live(session)
        if (use := _share(runner, name)) is not None
    ]


def used_up(session: BusSession, preset: str, selector: RunnerSelector) -> str | None:
    """Return in words that no runner takes more of this clone's name now; None while one does, or none bounds it.

    Args:
        session: the bus.
        preset: of the request that waits.
        selector: which runners it asks for; only those count that would take it.
    """
    from bridge.client.connection.liveness import why_not

    name, now = asks_as(session), session.clock.now()
    spent = []
    for runner in _live(session):
        if why_not(runner, preset, selector) is not None:
            continue
        use = _share(runner, name)
        if use is None or use.left or use.next is None or parse_rfc3339(use.next) <= now:
            return None
        spent.append((runner, use))
    if not spent:
        return None
    runner, use = min(spent, key=lambda pair: pair[1].next or "")
    who = "unsigned requests have" if use.principal == UNSIGNED else f"{use.principal} has"
    return f"{who} used up the {use.per_hour} an hour that {runner.beacon.runner} takes; the next from {use.next}"


def asks_as(session: BusSession) -> str:
    """Return the name that requests from this clone count against."""
    choice = session.settings.signing
    return UNSIGNED if choice is None or choice.key == OFF or session.embedded else choice.principal


def _live(session: BusSession) -> list[SeenRunner]:
    """Return the live runners; none on this machine's own bus, or where the bus is silent."""
    if session.embedded:
        return []
    try:
        return [runner for runner in session.runners() if runner.live]
    except InfrastructureError:  # what is left is said beside an answer, and is no reason to withhold it
        return []


def _share(runner: SeenRunner, name: str) -> QuotaUse | None:
    """Return what a runner says of a name, None where it bounds it not."""
    uses = {use.principal: use for use in runner.beacon.quotas}
    return uses.get(name) or (None if name == UNSIGNED else uses.get(ANYBODY))
