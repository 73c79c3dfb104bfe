"""Open the bus of a command, or that of a run: what every command does first."""

from __future__ import annotations

from bridge.cli.mac.context import Invocation
from bridge.client.connection.run_bus import require_same_bus
from bridge.client.connection.session import BusSession


def connect(call: Invocation, *, quiet: bool = False) -> BusSession:
    """Open the bus of a command and say which one it is."""
    session = call.open(call.settings())
    if not quiet:
        call.output.say("bus", session.bus_line())
    return session


def connect_for(call: Invocation, text: str, *, quiet: bool = False) -> tuple[BusSession, str]:
    """Open the bus of a run and return it with the run's id.

    Raises:
        UsageError: this clone sent the run to another bus than the one that was named.
    """
    settings = call.settings(text)
    if quiet and settings != call.settings():
        call.output.note(f"asking the embedded bus on this machine: {settings.bus.where}")
    session = call.open(settings)
    if not quiet:
        call.output.say("bus", session.bus_line())
    return session, find_on(call, session, text)


def find_on(call: Invocation, session: BusSession, text: str) -> str:
    """Return the run id that a text means on an open bus.

    Raises:
        UsageError: this clone sent the run to another bus.
    """
    run_id = session.find(text)
    require_same_bus(session.settings, run_id, session.record.bus_id, call.command.name)
    return run_id
