"""Watch one run until it ends, the wait ends, or no runner is left to end it.

Yields what changed; knows nothing about how it is shown. A remote that fails for a while is waited for.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from bridge.bus.views import RunView
from bridge.client.connection.liveness import look, spooled_at
from bridge.client.connection.session import BusSession
from bridge.client.document.untrusted import LineJoiner
from bridge.client.run.status import EndReason, may_be_over, nobody_starts, state_of_view
from bridge.errors import BusError, RemoteError
from bridge.records.claim import Claim, RunProgress
from bridge.run.lease import LeaseWatch
from bridge.run.state import RunState, state_of
from bridge.trust.judgement import UNCHECKED

HEARTBEAT_S: Final = 30.0
PATIENCE_S: Final = 600.0  # a remote may be away this long before the wait gives up
WAKE_S: Final = 1.0
_LOCAL_POLL_S: Final = (0.05, 0.5)
_HOSTED_POLL_S: Final = (2.0, 10.0)
_POLL_GROWTH: Final = 1.3
# Between two looks at the folders of a bus on this machine: for a while after something moved, and later.
_GLANCE_S: Final = (0.005, 0.02)
_BRISK_S: Final = 2.0

UNKNOWN_S: Final = 10.0  # how long a request may be missing on the bus before the wait gives up

EventKind = Literal["state", "progress", "log", "heartbeat", "trouble", "end"]
LogWish = Literal["none", "last", "lines"]


@dataclass(frozen=True)
class Progress:
    """One event of a run that is being watched.

    Attributes:
        kind: ``state`` changed, ``progress`` within it, ``log`` has new lines, ``heartbeat`` after 30 silent seconds,
            ``trouble`` with the remote, ``end``.
        elapsed_s: since the run was asked for.
        lines: clean lines of the log, or one line about the trouble.
        end: why this is the last one.
        last_line: the clean last line of the log so far; None where the log was not asked for or is empty.
    """

    kind: EventKind
    elapsed_s: float
    state: RunState
    view: RunView | None
    lines: tuple[str, ...] = ()
    log_bytes: int = 0
    end: EndReason | None = None
    last_line: str | None = None

    @property
    def run(self) -> RunProgress | None:
        """How far the run is, as far as its runner said; None in any state but running."""
        claim = None if self.view is None or self.view.claim is None else self.view.claim.claim
        return claim.progress if claim is not None and self.state is RunState.RUNNING else None


@dataclass
class Follower:
    """One wait for one run.

    Attributes:
        since: when the run was asked for.
        expires: when it is no longer started, None when unknown.
        timeout_s: how long to wait, None for as long as it takes.
        log: whether the log is read not at all, for its last line, or for all of its lines.
        just_sent: whether it was put on the bus a moment ago, so that nothing of it is looked for before that can have
            changed.
    """

    session: BusSession
    run_id: str
    since: dt.datetime
    expires: dt.datetime | None = None
    timeout_s: float | None = None
    log: LogWish = "none"
    just_sent: bool = False

    def __post_init__(self) -> None:
        self._lease = LeaseWatch(self.session.clock)
        self._joiner = LineJoiner()
        self._shown = (-1, 0)  # the position of the newest claim whose state was shown
        self._log_tip: str | None = None
        self._log_seq = -1
        self._log_bytes = 0
        self._last_line: str | None = None
        self._shown_progress: tuple[RunProgress | None, str | None] = (None, None)
        self._log_refused = self._log_doubted = False
        self._woken_s = float("-inf")
        self._mark: Hashable = None
        self._moved_s = self.session.clock.steady_s()
        self._state = RunState.QUEUED
        self._view: RunView | None = None
        self._lost_since_s: float | None = None
        self._missing_since_s: float | None = None
        self._judging_since_s: float | None = None
        self._away_since_s: float | None = None
        self._trouble = self._progress("trouble")

    def events(self) -> Iterator[Progress]:
        """Yield the events of the run; the last one has kind ``end``.

        Raises:
            RemoteError: the remote has been away for longer than PATIENCE_S.
        """
        clock = self.session.clock
        begun_s = spoken_s = clock.steady_s()
        first_s, most_s = poll_bounds(self.session)
        pause_s = first_s
        if self.just_sent:
            self._wake()
            self._mark = self.session.bus.mark()
            self._rest(self._nap(first_s if self._mark is None else most_s, begun_s))
        while True:
            self._wake()
            self._mark = self.session.bus.mark()
            news, end = self._look(clock.steady_s() - begun_s)
            now_s = clock.steady_s()
            for piece in news:
                yield piece
                spoken_s = spoken_s if piece.kind == "progress" else now_s
            if end is not None:
                yield self._progress("end", end=end)
                return
            if now_s - spoken_s >= HEARTBEAT_S:
                spoken_s = now_s
                yield self._progress("heartbeat") if self._away_since_s is None else self._trouble
            moved = any(piece.kind != "progress" for piece in news) and self._away_since_s is None
            self._moved_s = now_s if moved else self._moved_s
            pause_s = first_s if moved else min(most_s, pause_s * _POLL_GROWTH)
            if self._mark is not None:
                pause_s = most_s  # something new ends the pause, so hardly any look finds nothing
            self._rest(self._nap(pause_s, begun_s))

    def _look(self, waited_s: float) -> tuple[list[Progress], EndReason | None]:
        """Return new events and why the wait is over; a remote that does not answer is one event.

        Raises:
            RemoteError: it has not answered for PATIENCE_S.
        """
        news: list[Progress] = []
        try:
            for piece in self._poll():
                news.append(piece)  # noqa: PERF402 - what came before an error is kept
            end = self._end()
        except RemoteError as error:
            now_s = self.session.clock.steady_s()
            if self._away_since_s is None:
                self._away_since_s = now_s
                news.append(self._progress("trouble", lines=(f"{error.message}; trying again",)))
            elif now_s - self._away_since_s > PATIENCE_S:
                raise
            self._trouble = self._progress("trouble", lines=(f"{error.message}; trying again",))
            end = None
        else:
            self._away_since_s = None
        if end is None and self.timeout_s is not None and waited_s >= self.timeout_s:
            end = "pending"
        return news, end

    def _poll(self) -> Iterator[Progress]:
        view = self.session.view(self.run_id, with_log=self.log != "none")
        self._view = view
        self._lease.listed({} if view.claim is None else {self.run_id: view.claim.oid})
        if view.claim is not None:
            self._lease.read(self.run_id, view.claim.oid, view.claim.claim.position)
        history = view.claim.history if view.claim is not None else ()
        fresh = tuple(claim for claim in history if claim.position > self._shown)
        passed = list(_new_states(fresh, self._state, state_of_view(view)))
        self._shown = max((claim.position for claim in history), default=self._shown)
        for state in passed:
            if state.terminal:
                yield from self._read_log(view.log)  # a run's last lines come before its end
            self._state = state
            yield self._progress("state")
        yield from self._read_log(view.log)
        now = self._progress("progress")
        if not now.state.terminal and (now.run, now.last_line) != self._shown_progress:
            self._shown_progress = (now.run, now.last_line)
            if now.run is not None or now.last_line is not None:
                yield now

    def _read_log(self, tip: str | None) -> Iterator[Progress]:
        if self.log == "none" or tip is None or tip == self._log_tip:
            return
        lines: list[str] = []
        try:
            chunks = self.session.bus.read_log(self.run_id, self._log_seq, tip)
        except BusError as error:  # not its runner's, or none at all: the result has the log again
            self._log_tip = tip
            if not self._log_refused:
                self._log_refused = True
                yield self._progress("trouble", lines=(f"{error.message}; not shown",))
            return
        self._log_refused = False
        if not self._log_doubted and (doubt := unsigned_log(self.session, self.run_id)) is not None:
            self._log_doubted = True
            yield self._progress("trouble", lines=(doubt,))
        for chunk in chunks:
            self._log_seq = chunk.head.seq
            self._log_bytes = chunk.head.offset + chunk.head.length
            lines += self._joiner.feed(chunk.data)
            if chunk.head.final:
                lines += self._joiner.finish()
        self._log_tip = tip
        self._last_line = next((line for line in reversed(lines) if line.strip()), self._last_line)
        if lines and self.log == "lines":
            yield self._progress("log", lines=tuple(lines))

    def _end(self) -> EndReason | None:
        if self._state.terminal:
            return "terminal"
        self._check_is_there()
        if self._is_spooled():
            return "publish_failed"
        if self._is_lost():
            return "publish_failed" if self._spooled() else "runner_lost"
        if self._is_expired():
            return "expired"
        return None

    def _check_is_there(self) -> None:
        """Stop waiting for a request that no runner can see.

        Raises:
            BusError: the request has been missing for UNKNOWN_S.
        """
        view, now_s = self._view, self.session.clock.steady_s()
        if view is None or view.request is not None or view.claim is not None:
            self._missing_since_s = None
        elif self._missing_since_s is None:
            self._missing_since_s = now_s
        elif now_s - self._missing_since_s > UNKNOWN_S:
            raise BusError(
                f"run {self.run_id} is not on the bus {self.session.bus.route}: never sent, or its branch was deleted",
                remedy="run the same command again",
            )

    def _is_spooled(self) -> bool:
        """Whether the runner says that the run is over and its result cannot be delivered; asked when it takes long."""
        now_s = self.session.clock.steady_s()
        if self._view is None or not may_be_over(self._view, self._state):
            self._judging_since_s = None
            return False
        if self._judging_since_s is None:
            self._judging_since_s = now_s
        if now_s - self._judging_since_s < HEARTBEAT_S:
            return False
        self._judging_since_s = now_s
        return self._spooled()

    def _spooled(self) -> bool:
        runners = look(self.session.bus, self.session.record, self.session.clock.now())
        return spooled_at(runners, self.run_id) is not None

    def _is_lost(self) -> bool:
        """Whether the claim's lease has passed and no runner is left that would end the run."""
        view, clock = self._view, self.session.clock
        claim = None if view is None else view.claim
        lease_s = 0.0 if claim is None else self.session.record.counted_lease_s(claim.claim.lease_s)
        if claim is None or not self._lease.expired(self.run_id, lease_s):
            self._lost_since_s = None
            return False
        if self._lost_since_s is None:
            self._lost_since_s = clock.steady_s()
        someone = self.session.wake_runner is not None or any(
            runner.live for runner in look(self.session.bus, self.session.record, clock.now())
        )
        # Whoever is left gets one more lease to take over or to finalise.
        grace_s = lease_s if someone else 0.0
        return clock.steady_s() - self._lost_since_s > grace_s

    def _is_expired(self) -> bool:
        return nobody_starts(self.session, self._state, self.expires)

    def _wake(self) -> None:
        now_s = self.session.clock.steady_s()
        if self.session.wake_runner is not None and now_s - self._woken_s >= WAKE_S:
            self._woken_s = now_s
            self.session.wake_runner()

    def _rest(self, pause_s: float) -> None:
        """Wait so long, or until the bus has something new where that is seen without asking."""
        clock, bus = self.session.clock, self.session.bus
        due_s = clock.steady_s() + pause_s
        while (left_s := due_s - (now_s := clock.steady_s())) > 0:
            glance_s = _GLANCE_S[now_s - self._moved_s >= _BRISK_S]
            clock.sleep(left_s if self._mark is None else min(left_s, glance_s))
            if self._mark != bus.mark():
                return

    def _nap(self, pause_s: float, begun_s: float) -> float:
        if self.timeout_s is None:
            return pause_s
        left_s = self.timeout_s - (self.session.clock.steady_s() - begun_s)
        return max(0.0, min(pause_s, left_s))

    def _progress(
        self, kind: EventKind, *, lines: tuple[str, ...] = (), end: EndReason | None = None
    ) -> Progress:  # fmt: skip
        elapsed_s = max(0.0, (self.session.clock.now() - self.since).total_seconds())
        return Progress(kind, elapsed_s, self._state, self._view, lines, self._log_bytes, end, self._last_line)


def unsigned_log(session: BusSession, run_id: str) -> str | None:
    """Return what to say of an unsigned live log where a key is known, None when there is nothing to say."""
    signature = session.bus.log_signature(run_id)
    if signature.word != "unsigned" or signature == UNCHECKED:
        return None
    return "the live log is unsigned; the result's own log is signed with it"


def poll_bounds(session: BusSession) -> tuple[float, float]:
    """Return the shortest and the longest pause between two looks at the bus."""
    return _HOSTED_POLL_S if session.bus.hosted else _LOCAL_POLL_S


def _new_states(claims: tuple[Claim, ...], last: RunState, now: RunState) -> Iterator[RunState]:
    """Yield the states passed since the last look, also those that were too short to be seen."""
    for state in (*map(state_of, claims), now):
        if state is not last:
            last = state
            yield state
