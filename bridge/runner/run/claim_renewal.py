"""Keep one claim alive while its run goes on, sending its log and this runner's beacon in the same push.

Knows nothing about what runs. Works in a thread of its own, because a push may take longer than a run may wait.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from bridge.bus.views import HeldClaim, LogChunk, ReceivedRequest, RequestRef
from bridge.errors import (
    BegunError,
    FencedError,
    GivenUpError,
    InfrastructureError,
    KakeyaError,
    RemoteError,
    of_system,
)
from bridge.limits import LEASE_RUN_SHARE, LOG_CHUNK_MAX_BYTES, UPLINK_SLOW_BYTES_PER_S, WAKE_GRACE_S
from bridge.records.bus import Beacon
from bridge.records.claim import Claim, RunProgress
from bridge.records.logs import LogHead
from bridge.run.lease import OwnLease
from bridge.run.outcomes import Ending
from bridge.runner.connection.link import BusLink
from bridge.system.clock import Clock, rfc3339
from bridge.system.tasks import THREADS, Task, Tasks

Phase = Literal["preparing", "running", "judging", "publishing"]
PROGRESS_S: Final = 10.0  # no push for progress alone sooner after the last one
_TRIES = 3


def following(held: HeldClaim, clock: Clock, **changes: Any) -> Claim:
    """Return the claim that may replace the held one, with these changes: a renewal, or another state or runner.

    A renewal counts beats; where the bus lets it, it takes the place of an earlier renewal and its number. What was
    said of the run's progress is not kept.
    """
    old = held.claim
    renews = all(changes.get(name, getattr(old, name)) == getattr(old, name) for name in ("state", "runner"))
    amends = renews and held.amends and old.beat > 0
    fresh = {
        "sequence": old.sequence if amends else old.sequence + 1,
        "beat": old.beat + 1 if renews else 0,
        "nonce": secrets.token_hex(16),
        "time": rfc3339(clock.now()),
        "progress": None,
    }
    return old.evolve(**{**fresh, **changes})


@dataclass(frozen=True)
class ClaimedRun:
    """A claim we hold and what is to be done with it."""

    ref: RequestRef
    held: HeldClaim
    received: ReceivedRequest | None
    claimed: str
    asked_s: float
    lost: Ending | None = None  # set for runs that were started before: how they end if nothing is known of them


class ClaimRenewal:
    """Owns the tip of one claim; everything that moves it goes through here."""

    def __init__(
        self,
        link: BusLink,
        held: HeldClaim,
        *,
        clock: Clock,
        beacon: Callable[[], Beacon | None],
        asked_s: float,
        tasks: Tasks = THREADS,
        progress_s: float = PROGRESS_S,
    ) -> None:
        self._link, self._clock, self._beacon, self._tasks = link, clock, beacon, tasks
        self._held = held
        self._lease = OwnLease(clock, held.claim.lease_s, asked_s)
        self._since_s = self._looked_s = clock.steady_s()
        self._awake_s = float("-inf")
        self._lock = threading.Lock()
        self._pending = bytearray()
        self._unkept: LogChunk | None = None  # taken from what is pending, and perhaps not kept by the bus
        self._seq = 0
        self._offset = 0
        self._known_bytes = 0
        self._progress: RunProgress | None = None
        self._progress_s, self._pushed_s = progress_s, clock.steady_s()
        self._ended = self._left = False
        self._fenced = False
        self._failure: str | None = None
        self._unanswered: dict[str, float] = {}
        self._stop = threading.Event()
        self._task: Task | None = None

    @property
    def held(self) -> HeldClaim:
        """The claim as it was last acknowledged."""
        return self._held

    def start(self) -> None:
        """Begin to renew, unless it has begun."""
        if self._task is None:
            self._looked_s = self._clock.steady_s()  # nobody looked before, however long the preparation took
            self._task = self._tasks.start(self._work, f"renewal-{self._held.claim.id[-8:]}")

    def feed(self, data: bytes) -> None:
        """Take log bytes; they leave with one of the next pushes."""
        with self._lock:
            known = min(self._known_bytes, len(data))
            self._known_bytes -= known
            self._pending += data[known:]

    def report(self, progress: RunProgress) -> None:
        """Take how far the run is; it leaves with one of the next pushes."""
        self._progress = progress

    def resume_log(self) -> None:
        """Go on with the log where an earlier process of this runner left it; `feed` still gets it from its beginning.

        Raises:
            InfrastructureError: the bus did not answer.
        """
        with self._link.lock:
            head = self._link.bus.resume_log(self._held.claim.id)
        if head is not None:
            self._seq, self._offset, self._ended = head.seq + 1, head.offset + head.length, head.final
            self._known_bytes = self._offset

    def lost(self) -> str | None:
        """Return why this runner may no longer act for the run, or None.

        A lease that ran out while this process could not run (the machine slept) is first tried to be renewed: whether
        another runner has moved the claim meanwhile, only the bus knows.
        """
        if self._fenced:
            return "another runner owns the claim now"
        self._look()
        if not self._lease.lost() or self._clock.steady_s() < self._awake_s + WAKE_GRACE_S:
            return None
        return "the lease could not be renewed in time" + (f": {self._failure}" if self._failure else "")

    def _look(self) -> None:
        """Note when this process runs again after it did not for so long that a good lease may have run out in it."""
        now_s = self._clock.steady_s()
        if now_s - self._looked_s > min(WAKE_GRACE_S, self._lease.bound_s / 2):
            self._awake_s = now_s
        self._looked_s = now_s

    def advance(self, **changes: Any) -> HeldClaim:
        """Move the claim on now, e.g. to another phase; a push that fails is tried again as long as the lease holds.

        Raises:
            FencedError: another runner moved it.
            RemoteError: it could not be sent; a `GivenUpError` where the runner is to end.
        """
        made: list[tuple[str, Claim]] = []

        def make(held: HeldClaim) -> Claim:
            # The same commit on the same tip: one that arrived without an answer is recognised, not fenced off.
            if not made or made[-1][0] != held.oid:
                made.append((held.oid, following(held, self._clock, **changes)))
            return made[-1][1]

        pause_s = 1.0
        while True:
            try:
                return self._push(make, final=False)
            except (FencedError, GivenUpError):
                raise
            except InfrastructureError:
                if self._lease.lost():
                    raise
                self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, 5.0)

    def begin(self) -> None:
        """Move the claim on to the one that begins the run; one that did before a crash is looked after.

        Raises:
            FencedError: another runner moved it, or began the run.
            RemoteError: it could not be sent.
        """
        if self._held.claim.state != "started":
            self.advance(state="started", phase="running")
            return
        with self._link.lock:
            self._link.bus.begin_again(self._held)

    def extend(self, lease_s: float) -> None:
        """Renew now, for so long, and keep to it from here on.

        Raises:
            FencedError: another runner moved it.
            RemoteError: it could not be sent.
        """
        self.advance(lease_s=lease_s)

    def stop(self) -> None:
        """Stop renewing; whoever moves the claim from here on is alone, and begins with what has arrived."""
        self._stop.set()
        if self._task is not None:
            self._task.join()
        with self._link.lock, suppress(InfrastructureError, OSError):  # nothing is learned on a full disk
            self._has_arrived()

    def finish(self, phase: Phase, *, result_bytes: int = 0) -> HeldClaim:
        """Stop renewing, send the rest of the log with its end mark, and return the claim.

        What a result says of its claims is fixed when it is built, so nothing renews the claim on its way: a large one
        gets a lease in which it arrives over a slow line. A run that was over soon after its start was pushed and left
        little makes no push for this alone: `last_chunk` goes with its end. A log that cannot be sent is no reason to
        lose a result: it is in the result tree as well.

        Args:
            phase: what comes now.
            result_bytes: of log and reports together.

        Raises:
            FencedError: another runner moved it.
            GivenUpError: the runner is to end.
        """
        self.stop()
        short = (
            self._held.claim.beat == 0
            and self._unkept is None
            and max(len(self._pending), result_bytes) <= LOG_CHUNK_MAX_BYTES
        )
        slow_s = self._held.claim.lease_s + result_bytes / UPLINK_SLOW_BYTES_PER_S
        lease_s = max(self._held.claim.lease_s, min(slow_s, self._link.record.lease_s))
        self._left = short and self._lease.due_in_s() > 0 and self._link.push_wait_s() > 0
        if self._left:
            return self._held
        failures = 0
        while failures < _TRIES:
            try:
                final = len(self._pending) <= LOG_CHUNK_MAX_BYTES
                self._push(lambda held: following(held, self._clock, phase=phase, lease_s=lease_s), final=final)
            except (FencedError, GivenUpError):
                raise
            except InfrastructureError:
                failures += 1
                self._clock.sleep(min(2.0**failures, 5.0))
            else:
                if self._ended:
                    break
        return self._held

    def last_chunk(self) -> LogChunk | None:
        """Take the end of the log where `finish` left it to the push that ends the run, None otherwise."""
        return self._next_chunk(final=True) if self._left else None

    def _work(self) -> None:
        while not self._tasks.wait(self._stop, min(max(0.25, self._tasks.glance_s), max(0.02, self._lease.due_in_s()))):
            self._look()
            with self._lock:
                waiting = bool(self._pending) or self._has_progress()
            urgent = self._lease.due_in_s() == 0.0
            if not (waiting or urgent) or self._link.push_wait_s(urgent=urgent) > 0:
                continue
            try:
                with self._link.lock:
                    if not self._link.take_push_turn(urgent=urgent):
                        continue  # another slot or runner was quicker, and the budget is the host's
                    self._push(self._renewed, final=False)
            except FencedError:
                self._fenced = True
                return
            except (InfrastructureError, OSError) as error:
                # The budget stretches; the lease decides how long this may go on.
                self._failure = (of_system(error) if isinstance(error, OSError) else error).message
                continue

    def _renewed(self, held: HeldClaim) -> Claim:
        """Return the next renewal: a longer lease where pushes take longer by now, or the run has gone on for long.

        A remote or a machine that does not answer for a minute costs a run of a minute little and one of hours much.
        """
        going_s = self._clock.steady_s() - self._since_s
        wanted_s = min(max(self._link.budget.lease_s(), going_s * LEASE_RUN_SHARE), self._link.record.lease_s)
        lease_s = max(held.claim.lease_s, float(int(wanted_s)))
        return following(held, self._clock, progress=self._progress, lease_s=lease_s)

    def _has_progress(self) -> bool:
        """Whether the bus shows an older progress, and has for long enough to be told for that alone."""
        quiet_s = self._clock.steady_s() - self._pushed_s
        return self._progress != self._held.claim.progress and quiet_s >= self._progress_s

    def _push(self, make: Callable[[HeldClaim], Claim], *, final: bool) -> HeldClaim:
        """Move the claim on; one whose ref was deleted is put back, no more than once a call.

        Raises:
            FencedError: another runner moved it.
            InfrastructureError: it could not be sent.
        """
        with self._link.lock:
            chunk = self._unkept or self._next_chunk(final=final)
            self._unkept = chunk
            was_put_back = False
            while True:
                sign = self._sign_of_life()
                claim, asked_s = make(self._held), self._clock.steady_s()
                try:
                    self._held = self._link.bus.advance(self._held, claim, log=chunk, beacon=sign)
                except FencedError as error:
                    self._link.budget.spent(ok=False, took_s=self._clock.steady_s() - asked_s)
                    if isinstance(error, BegunError):
                        self._fenced = True
                        raise
                    if not self._has_arrived():
                        self._put_back(again=was_put_back)
                        was_put_back = True
                    chunk = None  # the bus keeps it
                    continue
                except (InfrastructureError, OSError):
                    self._link.budget.spent(ok=False, took_s=self._clock.steady_s() - asked_s)
                    self._unanswered[claim.nonce] = asked_s
                    raise
                finally:
                    self._looked_s = self._clock.steady_s()  # a push that hung is no machine that slept
                break
            self._unkept = None
            self._failure = None
            self._link.budget.spent(ok=True, took_s=self._clock.steady_s() - asked_s)
            self._lease.renewed(asked_s, claim.lease_s)
            self._unanswered.clear()
            self._pushed_s = asked_s
        return self._held

    def _sign_of_life(self) -> Beacon | None:
        """Return the beacon that is due; None where it cannot be made now, for which no lease is lost."""
        try:
            return self._beacon()
        except (KakeyaError, OSError):
            return None

    def _has_arrived(self) -> bool:
        """Return whether a claim of ours is at the tip whose push was not answered; then it is the one that is held.

        Raises:
            InfrastructureError: the bus did not answer.
        """
        if not self._unanswered:
            return False
        view = self._link.bus.read_claim(self._held.claim.id)
        if view is None or view.signature.refused:  # another's copy shows the same nonce
            return False
        asked_s = self._unanswered.pop(view.claim.nonce, None)
        if asked_s is None:
            return False
        self._held = view.held()
        self._lease.renewed(asked_s, view.claim.lease_s)
        return True

    def _put_back(self, *, again: bool) -> None:
        """Put the claim back that was deleted on the bus; over one of another runner that did not begin the run.

        Args:
            again: whether that was done in this call already; then it is left to the next one, which comes later.

        Raises:
            FencedError: it was not deleted: another runner has it.
            InfrastructureError: the bus did not answer, or what was put back is gone again.
        """
        if again:
            raise RemoteError(f"the claim of run {self._held.claim.id} was put back and is gone again")
        try:
            self._link.bus.put_back(self._held)
        except FencedError:
            self._fenced = True
            raise

    def _next_chunk(self, *, final: bool) -> LogChunk | None:
        """Take the next chunk."""
        with self._lock:
            data = bytes(self._pending[:LOG_CHUNK_MAX_BYTES])
            del self._pending[: len(data)]
        if self._ended or not (data or final):
            return None
        digest = hashlib.sha256(data).hexdigest()
        head = LogHead(
            id=self._held.claim.id, seq=self._seq, offset=self._offset, length=len(data), sha256=digest, final=final
        )
        self._seq += 1
        self._offset += len(data)
        self._ended = final
        return LogChunk(head=head, data=data)
