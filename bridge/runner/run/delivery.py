"""Bring a built result to its requester: one compare-and-swap that ends the run, then a copy on the request branch.

Every step is in the journal before the next begins, so any of them can be repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Callable

from bridge.bus.views import HeldClaim, RequestRef
from bridge.errors import FencedError, InfrastructureError
from bridge.records import Claim, Delivery
from bridge.run.outcomes import Ending
from bridge.runner.connection.link import BusLink
from bridge.runner.host import Host
from bridge.runner.run.claim_renewal import following
from bridge.runner.run.notifications import owed

_TRIES = 3
_REST_S = (5.0, 300.0)


class Spool:
    """What was built and could not be delivered yet, and when it is tried again.

    Args:
        host: whose journal is asked.
        running: ids of runs that are going on, whose results are not late yet.
    """

    def __init__(self, host: Host, running: Callable[[], tuple[str, ...]]) -> None:
        self._host, self._running = host, running
        self._next: dict[str, tuple[float, float]] = {}

    def waiting(self) -> tuple[str, ...]:
        """Return the runs whose results have not landed."""
        running = set(self._running())
        journal = self._host.journal
        return tuple(
            run_id
            for run_id in journal.open_runs()
            if run_id not in running
            and (events := {line.event for line in journal.of(run_id)})
            and "result_built" in events
            and not events & {"terminal", "fenced"}
        )

    def resting(self) -> tuple[str, ...]:
        """Return those that are not to be tried now; each try that fails doubles the rest."""
        now_s = self._host.clock.steady_s()
        waiting = self.waiting()
        self._next = {run_id: when for run_id, when in self._next.items() if run_id in waiting}
        return tuple(run_id for run_id in waiting if run_id in self._next and now_s < self._next[run_id][0])

    def tried(self, resting: tuple[str, ...]) -> None:
        """Note that all but the resting ones were tried just now."""
        now_s = self._host.clock.steady_s()
        for run_id in self.waiting():
            if run_id not in resting:
                rest_s = min(2 * self._next.get(run_id, (0.0, _REST_S[0] / 2))[1], _REST_S[1])
                self._next[run_id] = (now_s + rest_s, rest_s)


def terminal_claim(held: HeldClaim, host: Host, ending: Ending, result_oid: str) -> Claim:
    """Return the claim that ends a run."""
    return following(
        held,
        host.clock,
        state="terminal",
        phase=None,
        runner=host.name,
        reason=ending.reason,
        message=ending.message,
        exit_code=ending.exit_code,
        result_oid=result_oid,
    )


def deliver(
    host: Host, link: BusLink, ref: RequestRef, held: HeldClaim, claim: Claim, *, tries: int = _TRIES
) -> Delivery:
    """End the run and copy its result; ``spooled`` when the remote did not take it, to be tried again later.

    Raises:
        FencedError: somebody else ended the run; nothing of ours was written.
    """
    for attempt in range(tries):
        try:
            with link.lock:
                ended = link.bus.publish(held, claim)
        except FencedError:
            raise
        except InfrastructureError as error:
            host.say(f"{ref.id[-8:]} result not published yet: {error.message}")
            if attempt + 1 < tries:
                host.clock.sleep(min(2.0**attempt, 10.0))
        else:
            host.journal.append("terminal", ref.id, ended.oid)
            return copy(host, link, ref, claim.result_oid, tries=tries)
    return "spooled"


def copy(host: Host, link: BusLink, ref: RequestRef, result_oid: str | None, *, tries: int = _TRIES) -> Delivery:
    """Append the published result to the request branch; what cannot be copied now is copied by recovery."""
    if result_oid is None:
        host.journal.append("copied", ref.id, None, delivery="branch_moved")
        return "branch_moved"
    for attempt in range(tries):
        try:
            with link.lock:
                delivery = link.bus.copy_result(ref, result_oid)
        except InfrastructureError as error:
            host.say(f"{ref.id[-8:]} result not copied to its branch yet: {error.message}")
            if attempt + 1 < tries:
                host.clock.sleep(min(2.0**attempt, 10.0))
        else:
            host.journal.append("copied", ref.id, result_oid, delivery=delivery, **owed(host, ref))
            return delivery
    return "spooled"
