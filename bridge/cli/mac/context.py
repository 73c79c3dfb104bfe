"""What a handler gets: the command, its values, the doors it may use, and the bus it is about, opened."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.screen.output import Output
from bridge.cli.table.command import Verb
from bridge.system.clock import Clock

if TYPE_CHECKING:
    from bridge.client.clone.config import ClientSettings
    from bridge.client.connection.session import BusSession

    Opener = Callable[[ClientSettings, Clock], BusSession]


@dataclass(frozen=True)
class Invocation:
    """One call of one command.

    Attributes:
        opener: opens the bus; None for the real one, which is imported only when a command needs it.
    """

    command: Verb
    args: argparse.Namespace
    output: Output
    clock: Clock
    environment: Mapping[str, str]
    directory: Path
    opener: Opener | None = None

    def settings(self, run: str | None = None) -> ClientSettings:
        """Return where this command works.

        Args:
            run: what was typed for a run, where the command is about one: its bus is the one it was sent to.
        """
        from bridge.client.clone.config import discover, ssh_route

        option: str | None = getattr(self.args, "bus", None)
        via: str | None = getattr(self.args, "via", None)
        if via is not None:
            option = ssh_route(via, option)
        found = discover(self.directory, self.environment, option)
        if run is None:
            return found
        from bridge.client.connection.run_bus import settings_of_run

        return settings_of_run(found, run)

    def open(self, settings: ClientSettings) -> BusSession:
        """Open the bus, checked."""
        if self.opener is not None:
            return self.opener(settings, self.clock)
        from bridge.client.connection.opening import open_session

        return open_session(settings, self.clock)


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
    from bridge.client.connection.run_bus import require_same_bus

    run_id = session.find(text)
    require_same_bus(session.settings, run_id, session.record.bus_id, call.command.name)
    return run_id
