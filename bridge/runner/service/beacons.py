"""This runner's sign of life, sent along with other pushes where there are any.

Knows what the runner knows of itself, and nothing about requests.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

from bridge.errors import InfrastructureError, PolicyRefusedError, of_system
from bridge.executor.observe import condition
from bridge.limits import BEACON_INTERVAL_IDLE_S, BEACON_LIVE_SLACK_S, OFFERS_MAX_COUNT
from bridge.presets.installed import registry
from bridge.presets.model import Preset
from bridge.records.bus import SIGNED_REQUESTS, AcceptedWorkflow, Beacon, QuotaUse, RunnerStart
from bridge.runner.authorisation.rules import OwnerRules, lacking
from bridge.runner.authorisation.rules_in_force import RulesInForce
from bridge.runner.connection.link import BusLink
from bridge.runner.machine.machine import Machine
from bridge.runner.state.folder import StateFolder
from bridge.system.clock import Clock, rfc3339


class BeaconSender:
    """Makes the next beacon when one is due; the sequence goes on from what the bus shows.

    One is due at once when something changed that a requester would want to know, and otherwise after an interval that
    doubles as long as nothing does: an idle runner must not fill a repository. Each beacon says when the next one comes
    at the latest, so that slow and dead can be told apart.

    Args:
        rules: what the owner allows.
        machine: what runs jobs here.
        folder: the runner's state folder: its disk, its pause and drain files.
        running: returns the ids of runs that are going on.
        spooled: returns the ids of runs whose results have not landed.
        quotas: returns what is left of the hour's shares.
        note: writes down the number of a beacon before it is sent.
        not_taking: returns, for requesters, why nothing is taken; empty where something may be.
        start: this start of the runner; None where it remembers none.
        stopping: set when the runner was asked to end now.
    """

    def __init__(
        self,
        rules: RulesInForce,
        machine: Machine,
        folder: StateFolder,
        link: BusLink,
        *,
        running: Callable[[], tuple[str, ...]],
        spooled: Callable[[], tuple[str, ...]],
        quotas: Callable[[], tuple[QuotaUse, ...]],
        note: Callable[[int], None],
        not_taking: Callable[[], str],
        start: RunnerStart | None,
        clock: Clock,
        stopping: threading.Event,
        log: logging.Logger,
    ) -> None:
        self._rules, self._machine, self._folder, self._link = rules, machine, folder, link
        self._clock, self._stopping, self._log = clock, stopping, log
        self._shortest_s = self._interval_s = link.record.beacon_interval_s
        with link.lock:
            seen = [beacon for _, beacon in link.bus.read_beacons() if beacon.runner == rules.now.name]
        newest = max(seen, key=lambda beacon: beacon.sequence, default=None)
        self._sequence = 0 if newest is None else newest.sequence
        self._shown = None if newest is None else newest.policy_digest
        self._running = running
        self._spooled = spooled
        self._quotas = quotas
        self._note, self._not_taking, self._start = note, not_taking, start
        self._last_s = float("-inf")
        self._told: tuple[object, ...] | None = None
        self._queue = 0
        self._ending = False
        self._lock = threading.Lock()

    def saw_queue(self, pending: int) -> None:
        """Note how many requests wait."""
        self._queue = pending

    def due(self) -> Beacon | None:
        """Return the next beacon if one is due, None otherwise."""
        with self._lock:
            news = self._news()
            if news == self._told and self._clock.steady_s() - self._last_s < self._interval_s:
                return None
            return self._next(news)

    def send(self, *, last: bool = False) -> None:
        """Push a beacon of its own when one is due.

        Where runners poll, that is a sign of life. Where Actions wakes them, it only says what the host accepts, so it
        is sent when the bus shows another policy; the embedded runner needs none.

        Args:
            last: the runner ends and says so, due or not.
        """
        wake = self._link.record.wake
        if wake == "embedded" or (wake == "actions" and (last or self._shown == self._rules.now.facts.digest)):
            return
        # While runs go on it travels with their renewals, and takes no turn of the push budget that a lease needs:
        # unless none came, because what goes on is a result on its way over a slow line.
        late = self._clock.steady_s() - self._last_s > self._interval_s + BEACON_LIVE_SLACK_S / 2
        if ((self._running() and not late) or self._link.push_wait_s() > 0) and not last:
            return
        self._ending = self._ending or last
        try:
            beacon = self.due()  # to end is news, so the last one is always due
            if beacon is None:
                return
            with self._link.lock:
                self._link.bus.beacon(beacon)
            self._link.budget.spent(ok=True)
            self._shown = beacon.policy_digest
        except (InfrastructureError, OSError) as error:
            self._told = None
            self._link.budget.spent(ok=False)
            known = of_system(error) if isinstance(error, OSError) else error
            self._log.warning("no sign of life could be sent: %s", known.line)

    def withdraw(self) -> None:
        """Delete the sign of life; where the bus does not answer it stays until its renewal is overdue."""
        try:
            with self._link.lock:
                gone = self._link.bus.withdraw_beacon(self._rules.now.name)
        except InfrastructureError as error:
            self._log.warning("the sign of life could not be withdrawn: %s", error.message)
            return
        if not gone:
            self._log.warning("another runner speaks as %s: its sign of life stays", self._rules.now.name)

    def _news(self) -> tuple[object, ...]:
        """Return what makes a beacon worth sending at once when it differs from what was last told."""
        running = self._running()
        rules, told = self._rules.now, self._not_taking()
        every, digest = rules.presets, rules.facts.digest
        presets = tuple((name, None if name in registry() else preset) for name, preset in every.items())
        return (self._ending, self._state(running), running, self._spooled(), self._queue, digest, presets, told)

    def _next(self, news: tuple[object, ...]) -> Beacon:
        quiet = news == self._told and not self._running()
        self._interval_s = min(self._interval_s * 2, BEACON_INTERVAL_IDLE_S) if quiet else self._shortest_s
        self._interval_s = max(self._interval_s, self._shortest_s)
        self._told, self._last_s = news, self._clock.steady_s()
        self._sequence += 1
        self._note(self._sequence)
        rules, running = self._rules.now, self._running()
        described, offers = self._machine.executor.host(), offered(rules, self._machine)
        return Beacon(
            runner=rules.name,
            version=self._machine.version,
            sequence=self._sequence,
            state=self._state(running),
            policy_digest=rules.facts.digest,
            presets=tuple(preset.name for preset in offers),
            offers=_own(offers),
            labels=rules.policy.labels,
            capabilities=_capabilities(rules, self._machine),
            host=f"{described.os} {described.machine} {described.cpu}"[:200],
            queue=self._queue,
            running=running,
            spooled=self._spooled(),
            interval_s=self._interval_s,
            workflows=tuple(
                AcceptedWorkflow(path=one.path, sha256=one.sha256, refs=one.refs)
                for one in rules.policy.actions.workflows
            ),
            disk_free_bytes=shutil.disk_usage(self._folder.root).free,
            thermal=condition.read().thermal.value,
            time=rfc3339(self._clock.now()),
            quotas=self._quotas(),
            not_taking=self._not_taking(),
            start=self._start,
        )

    def _state(self, running: tuple[str, ...]) -> Literal["idle", "busy", "paused", "draining", "stopped"]:
        if self._ending:
            return "stopped"
        if self._folder.drain.exists() or self._stopping.is_set() or self._link.moving_to():
            return "draining"
        if self._folder.pause.exists() or self._not_taking():
            return "paused"
        return "busy" if running else "idle"


def offered(rules: OwnerRules, machine: Machine) -> tuple[Preset, ...]:
    """Return the presets that the owner allows and this host can run: what they need is installed."""
    installed = machine.recent_code.packages
    ready = (one for one in rules.presets.values() if one.status == "ready" and rules.facts.allows(one.name))
    return tuple(one for one in ready if not lacking(one, installed))


def _own(presets: Iterable[Preset]) -> tuple[dict[str, Any], ...]:
    """Return the definitions that no requester has installed, whole."""
    own = [one for one in presets if one.name not in registry()]
    return tuple(one.model_dump(mode="json", by_alias=True) for one in own[:OFFERS_MAX_COUNT])


def _capabilities(rules: OwnerRules, machine: Machine) -> tuple[str, ...]:
    found = [*filter(machine.recent_code.packages.__contains__, ("mlx", "mlx-lm", "torch"))]
    found += [device.split()[0] for device in machine.executor.host().devices]
    sandbox = machine.executor.sandbox(rules.policy.sandbox.uid)
    signed = (SIGNED_REQUESTS,) if _checks_requests(rules) else ()
    return (*found, f"sandbox:{sandbox.kind}", *signed)


def _checks_requests(rules: OwnerRules) -> bool:
    try:
        return rules.signers.checks_requests
    except PolicyRefusedError:  # a list nobody can rely on: doctor says so
        return False
