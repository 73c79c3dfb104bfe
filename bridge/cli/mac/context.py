"""The one argument of every handler: the command, its values, its streams, and the way to its bus and its run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from bridge.cli.screen.output import Output
from bridge.cli.table.command import Options, Verb
from bridge.errors import KakeyaError
from bridge.system.clock import Clock

if TYPE_CHECKING:
    from bridge.client.clone.config import ClientSettings
    from bridge.client.connection.session import BusSession
    from bridge.client.run.run import Run
    from bridge.presets.model import Preset
    from bridge.run.requirement import Requirement

    Opener = Callable[[ClientSettings, Clock], BusSession]


Options_co = TypeVar("Options_co", bound=Options, covariant=True)


@dataclass(frozen=True)
class Invocation(Generic[Options_co]):
    """One call of one command.

    Attributes:
        options: what the command line gave.
        opener: opens the bus; None for the real one, which is imported only when a command needs it.
        opened: the buses that the command opened.
    """

    command: Verb
    options: Options_co
    output: Output
    clock: Clock
    environment: Mapping[str, str]
    directory: Path
    opener: Opener | None = None
    opened: list[BusSession] = field(default_factory=list)

    def required(self) -> Requirement | None:
        """Return what exit 0 takes of a verdict, None for anything but a rejection.

        Raises:
            UsageError: ``--require`` says nothing that can be required.
        """
        from bridge.run.requirement import Requirement

        text: str | None = getattr(self.options, "require", None)
        return None if text is None else Requirement.parse(text)

    def settings(self, run: str | None = None) -> ClientSettings:
        """Return where this command works.

        Args:
            run: what was typed for a run, where the command is about one: its bus is the one it was sent to.
        """
        from bridge.client.clone.config import discover, ssh_route

        option: str | None = getattr(self.options, "bus", None)
        via: str | None = getattr(self.options, "via", None)
        if via is not None:
            option = ssh_route(via, option)
        settings = discover(self.directory, self.environment, option)
        named = getattr(self.options, "root_key", None)
        if named is not None:
            settings = replace(
                settings, named_root_key=named, new_owner=bool(getattr(self.options, "new_owner", False))
            )
        if run is None:
            return settings
        from bridge.client.connection.run_bus import settings_of_run

        return settings_of_run(settings, run)

    def open(self, settings: ClientSettings, run: str | None = None) -> BusSession:
        """Open the bus of some settings, its identity checked.

        Args:
            settings: where the command works.
            run: what was typed for the run that is looked at next.
        """
        if self.opener is not None:
            session = self.opener(settings, self.clock)
        else:
            from bridge.client.connection.opening import open_session
            from bridge.client.connection.run_bus import sent_from

            session = open_session(settings, self.clock, sent_from(settings, run))
        self.opened.append(session)
        return session

    def close(self) -> None:
        """Let the copies of the opened buses be tended, now that the command has done its work."""
        for session in self.opened:
            session.bus.tend_apart()

    def local_presets(self) -> Mapping[str, Preset]:
        """Return what the embedded runner of this machine offers.

        Raises:
            UsageError: the owner's policy or a workload has a mistake.
        """
        from bridge.cli.mac.local_policy import local_presets

        return local_presets(self.environment)

    def runnable_here(self) -> frozenset[str]:
        """Return the presets for which this machine has the packages."""
        from bridge.cli.mac.local_policy import runnable_here

        return runnable_here(self.environment)

    def connect(self, *, quiet: bool = False) -> BusSession:
        """Open the bus of the command and name it."""
        session = self.open(self.settings())
        if not quiet:
            self.output.say("bus", session.bus_line())
        return session

    def run_on(
        self, session: BusSession, run_id: str, *, reattached: bool = False, just_sent: bool = False
    ) -> Run:  # fmt: skip
        """Return a run of an open bus."""
        from bridge.client.run.run import Run

        just_sent = just_sent and not reattached
        return Run(run_id, session.settings, session, self.environment, self.output.say, reattached, just_sent)

    def follow(self, runs: Sequence[Run], timeout_s: float | None) -> Iterator[Run]:
        """Wait for each run in turn, all of them no longer than so many seconds; only what goes wrong is said.

        Yields:
            Each run once the wait for it is over.
        """
        clock = runs[0].bus.clock
        deadline_s = None if timeout_s is None else clock.steady_s() + timeout_s
        for run in runs:
            left_s = None if deadline_s is None else max(0.0, deadline_s - clock.steady_s())
            for progress in run.follow(timeout_s=left_s):
                if progress.kind == "trouble":
                    self.output.note(progress.lines[0])
            yield run

    def find_run(self, text: str) -> Run:
        """Return the run a text means: from the store when its result is here, from the bus otherwise."""
        from bridge.client.run.run import find_stored

        stored = find_stored(self.settings(text), text, self.environment, self.output.say)
        if stored is None:
            return self.find_on_bus(text, quiet=True)
        return (self._find_archived(stored) if stored.revoked else None) or stored

    def _find_archived(self, stored: Run) -> Run | None:
        """Return a stored run, its bus open, where another runner archived it before its key was revoked."""
        try:
            run = self.find_on_bus(stored.id, quiet=True)
            files = run.bus.store.read_result(run.id).files
            return run if run.bus.archived_at(run.id, files) is not None else None
        except KakeyaError:
            return None

    def find_on_bus(self, text: str, *, quiet: bool = False) -> Run:
        """Return the run a text means, its bus open.

        Raises:
            UsageError: this clone sent the run to another bus than the one that was named.
        """
        settings = self.settings(text)
        if quiet and settings != self.settings():
            self.output.note(f"asking the embedded bus on this machine: {settings.bus.where}")
        session = self.open(settings, text)
        if not quiet:
            self.output.say("bus", session.bus_line())
        return self.find_beside(session, text)

    def find_beside(self, session: BusSession, text: str) -> Run:
        """Return the run a text means on an open bus.

        Raises:
            UsageError: this clone sent the run to another bus.
        """
        from bridge.client.connection.run_bus import require_same_bus

        run_id = session.find(text)
        require_same_bus(session.settings, run_id, session.record.bus_id, self.command.name)
        return self.run_on(session, run_id)
