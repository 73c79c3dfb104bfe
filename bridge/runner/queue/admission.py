"""Whether this runner takes a request now, leaves it to others, or leaves it for later; said with a reason.

Runs before anything is claimed. What a request may do is decided later, by preset and policy.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from dataclasses import dataclass

import psutil

from bridge.limits import QUOTAS_MAX_COUNT
from bridge.presets.model import Preset
from bridge.records.bus import ANYBODY, QuotaUse
from bridge.records.request import Request
from bridge.request import UNSIGNED
from bridge.runner.authorisation.rules_in_force import RulesInForce
from bridge.runner.state.folder import OpenState
from bridge.runner.state.sittings import SittingTimes, set_of, sitting_times
from bridge.system.clock import Clock, rfc3339

_IDLE_LOAD_SHARE = 0.25
_HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True)
class NotTaken:
    """Why a request is not taken now; it stays in the queue.

    Attributes:
        permanent: this runner will never take it.
    """

    reason: str
    permanent: bool = False


class Admission:
    """Decides for one runner, from its owner's rules and what its state says."""

    def __init__(self, rules: RulesInForce, state: OpenState, clock: Clock) -> None:
        self._rules, self._state, self._clock = rules, state, clock

    def begin(self, request: Request | None) -> None:
        """Note that a request begins here; the next sitting of its set waits a while from now on.

        Raises:
            JournalError: it could not be written.
        """
        if (set_id := set_of(request)) is not None:
            self._sittings.begin(set_id, self._clock.now())

    @property
    def _sittings(self) -> SittingTimes:
        return sitting_times(self._state, self._rules.now.policy)

    def host_wait(self) -> NotTaken | None:
        """Return why this host takes nothing at all now, or None."""
        if (problem := self._rules.look()) is not None:
            return NotTaken(problem.reason)
        folder, policy = self._state.folder, self._rules.now.policy
        if folder.pause.exists():
            return NotTaken("paused by the owner: kakeya-runner resume")
        floor = policy.limits.disk_floor_bytes
        free = shutil.disk_usage(folder.root).free
        if free < floor:
            return NotTaken(
                f"{free} bytes of disk are free, the policy keeps {floor}: kakeya-runner gc, or free some space"
            )
        return condition_wait(policy.only_when, self._clock)

    def request_wait(
        self, request: Request | None, preset: Preset | None, principal: str = UNSIGNED
    ) -> NotTaken | None:
        """Return why this runner does not take this request now, or None; a malformed one is taken and rejected.

        Args:
            request: what was pushed, None when it is no request.
            preset: what it asks for, None when this host has no such preset.
            principal: whose quota it counts against.
        """
        if request is None:
            return self._rate_wait(UNSIGNED)
        wanted, labels = request.runner, set(self._rules.now.policy.labels)
        if wanted.name is not None and wanted.name != self._rules.now.name:
            return NotTaken(f"meant for runner {wanted.name}", permanent=True)
        missing = sorted(set(wanted.labels) - labels)
        if missing:
            return NotTaken(f"needs labels this runner has not: {', '.join(missing)}", permanent=True)
        if preset is not None:
            lacking = sorted(set(preset.needs) - labels)
            if lacking and wanted.name is None:
                why = f"preset {preset.name} needs labels this runner has not: {', '.join(lacking)}"
                return NotTaken(why, permanent=True)
            waiting = condition_wait(preset.only_when, self._clock)
            if waiting is not None:
                return waiting
        return self._sitting_wait(request) or self._name_wait(principal)

    def _sitting_wait(self, request: Request) -> NotTaken | None:
        """Return whether the sitting before it began too short a while ago."""
        set_id = set_of(request)
        at = None if set_id is None else self._sittings.not_before(set_id)
        if at is None or at <= self._clock.now():
            return None
        return NotTaken(f"next sitting {at.astimezone():%H:%M}")

    def quotas(self) -> tuple[QuotaUse, ...]:
        """Return what is left of the hour's shares, as the beacon tells requesters; nothing where none is bounded.

        A name is told only once it asked: what the owner's policy says of others is not on the bus.
        """
        policy = self._rules.now.policy
        used = self._state.journal.claimants_since(self._clock.now() - _HOUR)
        names = [UNSIGNED, *(name for name in reversed(used) if name != UNSIGNED)]
        own = bool(policy.quotas) or any(one.per_hour is not None for one in policy.names.values())
        if len(names) < QUOTAS_MAX_COUNT and not own:
            names.append(ANYBODY)
        shares = ((name, self._rate(name), used.get(name)) for name in names[:QUOTAS_MAX_COUNT])
        return tuple(_use(name, rate, so_far) for name, rate, so_far in shares if rate)

    def _rate(self, principal: str) -> int:
        """Return how many requests of a principal are taken an hour, 0 for no bound."""
        policy = self._rules.now.policy
        if self._rules.now.embedded:
            return 0
        return policy.rate_per_hour if principal == UNSIGNED else policy.quota(principal)

    def _name_wait(self, principal: str) -> NotTaken | None:
        """Return whether the rules of a name, or its hour's share, keep it waiting."""
        rules = self._rules.now.policy.names.get(principal)
        if rules is not None and rules.hours is not None and not _hours(rules.hours, self._clock):
            return NotTaken(f"names.{principal!r}.hours = {rules.hours} does not hold now")
        return self._rate_wait(principal)

    def _rate_wait(self, principal: str) -> NotTaken | None:
        """Return whether the hour's share of a principal, or of all unsigned requests together, is used up."""
        policy, rate = self._rules.now.policy, self._rate(principal)
        if rate == 0:
            return None
        recent = self._state.journal.claims_since(self._clock.now() - _HOUR, principal)
        if recent < rate:
            return None
        ruled = principal in policy.names and policy.names[principal].per_hour is not None
        key = f"names.{principal!r}.per_hour" if ruled else "quota_per_hour, quotas"
        key = "rate_per_hour" if principal == UNSIGNED else key
        who = "unsigned requests" if principal == UNSIGNED else f"requests of {principal}"
        return NotTaken(f"{recent} {who} in the last hour, the policy allows {rate} ({key})")


def _use(name: str, rate: int, used: tuple[int, dt.datetime] | None) -> QuotaUse:
    count, first = used if used is not None else (0, None)
    following = None if first is None else rfc3339(first + _HOUR)
    return QuotaUse(principal=name, per_hour=rate, left=max(0, rate - count), next=following)


def condition_wait(conditions: tuple[str, ...], clock: Clock) -> NotTaken | None:
    """Return the first condition of the owner that does not hold, or None."""
    for condition in conditions:
        held = _CONDITIONS.get(condition, _hours)(condition, clock)
        if not held:
            return NotTaken(f"the owner's condition {condition} does not hold now")
    return None


def _idle(_condition: str, _clock: Clock) -> bool:
    return os.getloadavg()[0] < _IDLE_LOAD_SHARE * (os.cpu_count() or 1)


def _ac_power(_condition: str, _clock: Clock) -> bool:
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return battery is None or bool(battery.power_plugged)  # no battery: a desktop is always plugged in


def _hours(condition: str, clock: Clock) -> bool:
    """``hours-22-06``: from 22:00 until 06:00 local time."""
    _, first, last = condition.split("-")
    hour = clock.now().astimezone().hour
    begin, end = int(first), int(last)
    return begin <= hour < end if begin <= end else hour >= begin or hour < end


_CONDITIONS = {"idle": _idle, "ac_power": _ac_power}
