"""One run, as the commands use it: status, progress, log, result, and the request to cancel it.

Its answers come from the store of this clone where the verified result is there, as an end does not change any more,
and from the bus otherwise.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from bridge.client.clone.run_ids import resolve
from bridge.client.clone.store import Store
from bridge.client.connection.pins import Pins, RefusedResultError, pins
from bridge.client.connection.run_bus import is_own, sent_from
from bridge.client.document.parts import BusPart, QuotaPart
from bridge.client.document.untrusted import LineJoiner, clean_line, clean_lines
from bridge.client.run.status import RunStatus, run_status, stored_status
from bridge.errors import BusError, InfrastructureError, IntegrityError, PendingError, RunNotFoundError
from bridge.ids import short, unix_ms
from bridge.limits import EXPIRY_MAX_S
from bridge.request import UNSIGNED, expired
from bridge.run.state import RunState
from bridge.system.clock import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from bridge.bus.views import RunView
    from bridge.client.clone.config import ClientSettings
    from bridge.client.connection.session import BusSession
    from bridge.client.run.actions import Actions
    from bridge.client.run.follow import LogWish, Progress
    from bridge.client.run.result import Result
    from bridge.records.request import Request
    from bridge.run.requirement import Requirement

Say = Callable[[str, str], None]
_NAMESAKES_SHOWN: Final = 4


@dataclass
class Run:
    """One run of a request.

    Attributes:
        settings: where the command works, and on which bus.
        session: the open bus; None where the stored result answers.
        environment: variables, for asking GitHub about a run that Actions wakes a host for.
        say: takes a label and a line for people.
        reattached: whether the run was live before this command.
        just_sent: whether this command has put it on the bus a moment ago.
    """

    id: str
    settings: ClientSettings
    session: BusSession | None
    environment: Mapping[str, str]
    say: Say
    reattached: bool = False
    just_sent: bool = False
    _ended: RunStatus | None = None
    _last: Progress | None = None
    _request: Request | None = None

    @property
    def short(self) -> str:
        """The last characters of the id, as people see it."""
        return short(self.id)

    @property
    def embedded(self) -> bool:
        """Whether it runs on this machine."""
        return self.settings.bus.embedded

    @property
    def bus(self) -> BusSession:
        """The open bus; only asked for where no stored result answers."""
        if self.session is None:
            raise RuntimeError("a stored run has no open bus")
        return self.session

    def bus_part(self) -> BusPart:
        """Return the bus as `--json` shows it; of a stored run, the bus that its result names."""
        if self.session is not None:
            return self.session.bus_part()
        return self.settings.bus.part(self.result().manifest.bus_id)

    def quotas(self) -> list[QuotaPart]:
        """Return what may still be asked within the hour; nothing where the store answers."""
        from bridge.client.connection.quotas import quotas_of

        return [] if self.session is None else quotas_of(self.session)

    @property
    def elapsed_s(self) -> float | None:
        """Seconds since the run was asked for; None where its request cannot be read."""
        if self.session is None or self.request is None:
            return None
        return (self.session.clock.now() - parse_rfc3339(self.request.created)).total_seconds()

    @property
    def resume(self) -> str:
        """The command that attaches to this run."""
        return shlex.join(["kakeya-mac", "attach", self.short, *self.settings.bus.words])

    @property
    def known_request(self) -> Request | None:
        """The request as far as it is known without asking the bus."""
        sent = Store(self.settings.state_dir).sent(self.id)
        return self._request if sent is None else sent.request()

    @property
    def request(self) -> Request | None:
        """The request, from this clone's memory, else from the bus; None where it cannot be read."""
        if (request := self.known_request) is None:
            request = self._request = self.status(fetch=False).request
        return request

    def status(self, *, require: Requirement | None = None, fetch: bool = True) -> RunStatus:
        """Return the state of the run and, where it ended, its verified result; after `follow`, how the wait ended.

        Args:
            require: what exit code 0 takes, None for anything but a rejection.
            fetch: whether the result of an ended run is fetched when it is not stored yet.

        Raises:
            IntegrityError: the result is not this run's intact result, or nobody who may say it signed it.
            RunNotFoundError: neither the bus nor this clone knows the run.
        """
        if self._ended is not None:
            if self._ended.answer is not None and self._ended.answer.refused:
                raise RefusedResultError(self.id, self._ended.answer)
            return self._ended
        last, session = self._last, self.bus
        view = last.view if last is not None and last.view is not None else session.view(self.id)
        end = None if last is None else last.end
        status = run_status(session, self.id, view, end=end, require=require, fetch=fetch)
        status = replace(status, reattached=self.reattached)
        if status.terminal and fetch:
            self._ended = status
        return status

    def pins(self) -> Pins:
        """Return what this reader goes by for this run."""
        if self.session is not None:
            return self.session.pins()
        return _stored_pins(self.settings, self.id)

    @property
    def revoked(self) -> bool:
        """Whether only a revocation keeps its stored result from counting; an archive on the bus may say otherwise."""
        answer = None if self._ended is None else self._ended.answer
        return answer is not None and answer.revoked

    def result(self) -> Result:
        """Return the verified result.

        Raises:
            PendingError: there is none yet.
        """
        status = self.status()
        if status.result is None:
            raise PendingError(
                f"{self.short} has no result yet: {status.state_text}", remedy=f"kakeya-mac attach {self.id}"
            )
        return status.result

    def follow(self, *, timeout_s: float | None = None, log: LogWish = "none") -> Iterator[Progress]:
        """Yield what happens to the run; the last one has kind ``end``.

        Args:
            timeout_s: how long to wait, None for as long as it takes.
            log: whether the log is read not at all, for its last line, or for all of its lines.

        Raises:
            RemoteError: the remote has been away for too long.
        """
        from bridge.client.run.follow import Follower

        session, request = self.bus, self.request
        since = parse_rfc3339(request.created) if request is not None else session.clock.now()
        expires = parse_rfc3339(request.expires) if request is not None else None
        follower = Follower(
            session, self.id, since, expires=expires, timeout_s=timeout_s, log=log, just_sent=self.just_sent
        )  # fmt: skip
        self._ended, self.just_sent = None, False
        for progress in follower.events():
            self._last = progress
            yield progress

    def logs(self, *, after: int = 0) -> list[str]:
        """Return clean lines of the log: the result's from a byte on, the live one while there is no result."""
        result = self.status().result
        if result is not None:
            lines = list(clean_lines(result.log[after:]))
            return lines[:-1] if lines and not lines[-1] else lines
        if self.session is None or after:
            return []
        from bridge.client.run.follow import unsigned_log

        joiner = LineJoiner()
        try:
            lines = [line for chunk in self.session.bus.read_log(self.id) for line in joiner.feed(chunk.data)]
        except BusError as error:  # not its runner's, or none at all
            self.say("note", clean_line(error.message))
            return []
        if (unsigned := unsigned_log(self.session, self.id)) is not None:
            self.say("note", unsigned)
        return [*lines, *joiner.finish()]

    def cancel(self) -> RunStatus:
        """Ask the host to end the run unless it has ended, and return the status it had; asking twice is harmless.

        Raises:
            RemoteError: the push failed.
        """
        session, status = self.bus, self.status(fetch=False)
        if status.terminal:
            return status
        from bridge.client.connection.signing import identity_of
        from bridge.request.cancel import CancelRequest

        who = identity_of(session)
        data = CancelRequest(
            id=self.id,
            bus_id=session.record.bus_id,
            principal=UNSIGNED if who is None else who.principal,
            signer=None if who is None else who.fingerprint,
            time=rfc3339(session.clock.now()),
        ).canonical()
        session.bus.ask_cancel(self.id, data, None if who is None else who.sign(data))
        self.wake()
        return status

    def cancel_job(self, status: RunStatus) -> RunStatus:
        """Cancel the GitHub job too, unless that would keep the host from ending the run with a result.

        A job that waits is cancelled at once. One that runs is ended by the host, which publishes a result; only when
        the host was asked before is the job itself cancelled.

        Args:
            status: of the run, before it was asked to end.
        """
        actions = self.actions
        view = None if actions is None else actions.view()
        if actions is not None and view is not None and view.status != "completed":
            asked_before = status.view is not None and status.view.cancel_asked
            if view.ahead is None and not asked_before:
                self.say("actions", f"the host ends it with a result; again cancels the job itself: {view.url}")
            elif actions.cancel():
                self.say("actions", f"asked GitHub to cancel {view.url}")
                view = actions.view()
        return status if view is None else replace(status, actions=view)

    @cached_property
    def actions(self) -> Actions | None:
        """The GitHub workflow run of the request; None on a bus that Actions does not wake."""
        if self.session is None or self.session.record.wake != "actions":
            return None
        ref = self.request.ref if self.request is not None else None
        from bridge.client.run.actions import actions_of

        return actions_of(self.session, ref, self.environment, lambda line: self.say("note", line))

    def with_actions(self, status: RunStatus) -> RunStatus:
        """Return a status with the workflow run as GitHub shows it."""
        return status if self.actions is None else replace(status, actions=self.actions.view())

    def wake(self) -> None:
        """Start the embedded runner where the run is on this machine's own bus."""
        if self.bus.wake_runner is not None:
            self.bus.wake_runner()

    @property
    def wall_limit_s(self) -> float | None:
        """The wall limit that this installation's copy of the preset names; the host may have another."""
        from bridge.presets.installed import registry

        request = self.request
        preset = registry().get(request.preset) if request is not None else None
        if preset is None or request is None:
            return None
        own = preset.limits.claim.wall_s if request.profile != "smoke" else None
        limits = [value for value in (own or preset.limits.wall_s, request.limits.wall_s) if value is not None]
        return min(limits) if limits else None

    @property
    def may_be_repeated(self) -> bool:
        """Whether no runner can start or end this run any more, so that another one may be sent."""
        if Store(self.settings.state_dir).has_result(self.id):
            return True  # it ended, also where its end counts no more
        status = self.status(fetch=False)
        if status.terminal or status.reason != "pending":
            return True
        queued = status.state in {RunState.QUEUED, RunState.UNKNOWN}
        return queued and status.request is not None and expired(status.request, self.bus.clock.now())

    def why_queued(self, view: RunView | None) -> tuple[str, list[str]]:
        """Return why the request waits for a runner, and a line for each claim on it that does not count.

        A branch that has its run id too, as a view shows it, is named as well.
        """
        session, request = self.bus, self.request
        if request is None:
            return "waiting for a runner", []
        from bridge.client.connection.liveness import ignored_claims, waiting_because
        from bridge.client.connection.quotas import used_up

        if (sitting := self._waits_for_sitting(request)) is not None:
            return sitting, []
        why = waiting_because(session.runners(), session.bus, session.record, request.preset, request.runner)
        if before := self._waiting_before():
            why = f"{why}; {before} sent before it wait{'s' if before == 1 else ''} too"
        if (spent := used_up(session, request.preset, request.runner)) is not None:
            why = f"{why}; {spent}"
        others = () if view is None else view.namesakes
        ignored = [
            f"{namesake} has this run id too, and a runner may take it instead"
            for namesake in others[:_NAMESAKES_SHOWN]
        ]
        ignored += ignored_claims(session.bus, self.id)
        return clean_line(why), [clean_line(line) for line in ignored]

    def _waits_for_sitting(self, request: Request) -> str | None:
        """Return when the next sitting of its set may begin, in words; None where it waits for something else."""
        from bridge.client.run.sittings import next_sitting

        at = next_sitting(self.bus, request)
        return None if at is None or at <= self.bus.clock.now() else f"next sitting {at.astimezone():%H:%M}"

    def _waiting_before(self) -> int:
        """Return how many requests that were sent before this one still wait on the bus."""
        snapshot = self.bus.bus.snapshot()
        oldest_ms = self.bus.clock.now().timestamp() * 1000 - EXPIRY_MAX_S * 1000  # none older is started any more
        return sum(
            ref.id < self.id and ref.id not in snapshot.claims and unix_ms(ref.id) > oldest_ms
            for ref in snapshot.requests
        )

    def waiting_text(self) -> str:
        """Return in a few words why a queued request waits; a bus that does not answer is one reason."""
        if self.request is None:
            return "waiting for a runner"
        if self.actions is not None and (view := self.actions.view()) is not None:
            return view.text()
        words = "" if self.bus.runner_words is None else self.bus.runner_words()
        if (reason := words.partition(f"{self.short} waits: ")[2]) != "":
            return f"the runner on this machine waits: {clean_line(reason)}"
        try:
            why, ignored = self.why_queued(None if self._last is None else self._last.view)
        except InfrastructureError as error:  # a heartbeat never ends a wait
            return f"the bus does not answer: {error.message}"
        return "; ".join((why, *ignored[-1:]))


def find_stored(settings: ClientSettings, text: str, environment: Mapping[str, str], say: Say) -> Run | None:
    """Return the run a text means where its intact result is stored here; None means that the bus has to be asked."""
    store = Store(settings.state_dir)
    try:
        run_id = resolve(text, store.ids(), tuple)
        status = stored_status(store, run_id, _stored_pins(settings, run_id))
    except (RunNotFoundError, IntegrityError):
        return None
    return None if status is None else Run(status.id, settings, None, environment, say, _ended=status)


def _stored_pins(settings: ClientSettings, run_id: str) -> Pins:
    """Return what this reader goes by for a run that is stored, no bus having been asked."""
    return pins(settings, own=is_own(settings, sent_from(settings, run_id)))
