"""Find the runners that would take a request: read the beacons, and name the reason of each that would not.

On a bus that is woken by polling, a runner is live when its beacon is young, or is seen to advance.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from bridge.durations import age_text
from bridge.errors import NoRunnerError
from bridge.run.lease import beacon_counts_s
from bridge.system.clock import Clock, parse_rfc3339

if TYPE_CHECKING:
    from bridge.bus.sides.shared import SharedBus
    from bridge.records.bus import Beacon, BusRecord
    from bridge.records.request import RunnerSelector

POLLS = 2
CLOCK_DOUBT_S: Final = 3600.0  # a runner that was silent for so long may serve, and our clock be ahead
DISTRUSTED: Final = (
    "on the host: upgrade kakeya and restart kakeya-runner, an older one signs neither claims nor beacons; or compare "
    "the pinned key with what `kakeya-runner keygen --bus ROUTE` prints there (kakeya-mac init --runner-key NAME=KEY)"
)


@dataclass(frozen=True)
class SeenRunner:
    """A runner as its beacon shows it: the beacon, its age by our wall clock, and whether it counts as live."""

    tip: str
    beacon: Beacon
    age_s: float
    live: bool

    @property
    def offers(self) -> str:
        """Return in words that it offers something, or when it last did."""
        return "offers it" if self.live else f"offered it {age_text(self.age_s)} ago"


def look(bus: SharedBus, record: BusRecord, now: dt.datetime, *, as_opened: bool = False) -> list[SeenRunner]:
    """Return the runners of a bus, live ones first, then by name.

    Args:
        bus: where they are.
        record: its record.
        now: the time that their beacons are compared with.
        as_opened: whether to go by the listing that found the bus record.
    """
    runners = []
    for tip, beacon in bus.read_beacons(as_opened=as_opened):
        age_s = (now - parse_rfc3339(beacon.time)).total_seconds()
        live = age_s < beacon_counts_s(beacon, record) and beacon.state != "stopped"
        runners.append(SeenRunner(tip, beacon, max(0.0, age_s), live=live))
    return sorted(runners, key=lambda runner: (not runner.live, runner.beacon.runner))


def spooled_at(runners: Iterable[SeenRunner], run_id: str) -> SeenRunner | None:
    """Return the runner that says it ended a run and could not deliver its result yet, None when none says so."""
    return next((runner for runner in runners if run_id in runner.beacon.spooled), None)


def why_not(runner: SeenRunner, preset: str, selector: RunnerSelector) -> str | None:
    """Return why this runner would not take a request for a preset, None when it would."""
    beacon = runner.beacon
    if not runner.live:
        return f"{'was stopped' if beacon.state == 'stopped' else 'last seen'} {age_text(runner.age_s)} ago"
    if selector.name is not None and selector.name != beacon.runner:
        return f"is not the runner that was asked for ({selector.name})"
    missing = sorted(set(selector.labels) - set(beacon.labels))
    if missing:
        return f"has no label {', '.join(missing)}"
    if preset not in beacon.presets:
        return f"does not offer {preset}"
    if beacon.state in {"paused", "draining"}:
        return f"is {beacon.state}{_why_paused(beacon)}"
    return None


def _why_paused(beacon: Beacon) -> str:
    return f": {beacon.not_taking}" if beacon.not_taking else ""


def require_runner(
    bus: SharedBus,
    record: BusRecord,
    clock: Clock,
    *,
    preset: str,
    selector: RunnerSelector,
    poll_s: float,
    recent_runners: Callable[[], list[SeenRunner]] | None = None,
) -> SeenRunner | None:
    """Return a runner that would take the request; None on a bus where none has to be awake.

    Args:
        bus: where the request is to go.
        record: its record.
        clock: times the looks.
        preset: what is asked for.
        selector: which runners may take it.
        poll_s: how long after a look the next one comes.
        recent_runners: returns the runners as they were seen a moment ago; None looks.

    Raises:
        NoRunnerError: none, after looking for two poll periods; the message names every runner and why not.
    """
    if record.wake != "poll":
        return None
    first = look(bus, record, clock.now()) if recent_runners is None else recent_runners()
    if (taker := _willing(first, preset, selector)) is not None:
        return taker
    numbers = {runner.beacon.runner: runner.beacon.sequence for runner in first}
    latest = first
    for _ in range(POLLS):
        clock.sleep(poll_s)
        latest = [
            replace(runner, live=runner.live or (_went_on(runner.beacon, numbers) and runner.beacon.state != "stopped"))
            for runner in look(bus, record, clock.now())
        ]
        if (taker := _willing(latest, preset, selector)) is not None:
            return taker
    doubted = doubts(bus)
    remedy = _remedy(latest, doubted, preset, selector, clock.now())
    raise NoRunnerError(_nobody(latest, doubted, preset, selector), remedy=remedy)


def doubts(bus: SharedBus) -> list[str]:
    """Return a line for each beacon on the bus that does not count because of its signature."""
    return [f"a beacon of {it.runner} does not count: {it.why}" for it in bus.refused if it.kind == "beacon"]


def ignored_claims(bus: SharedBus, run_id: str) -> list[str]:
    """Return a line for each claim on a run that was seen and does not count because of its signature."""
    refusals = (refusal for refusal in bus.refused if refusal.kind == "claim" and refusal.ref.endswith(f"/{run_id}"))
    return [f"a claim in the name of {refusal.runner}: {refusal.why}" for refusal in refusals]


def _went_on(beacon: Beacon, numbers: dict[str, int]) -> bool:
    """Return whether a beacon is a new one or has counted on; an older one pushed again is no sign of life."""
    return beacon.sequence > numbers.get(beacon.runner, -1)


def waiting_because(
    runners: list[SeenRunner], bus: SharedBus, record: BusRecord, preset: str, selector: RunnerSelector
) -> str:
    """Return why a queued request is still waiting, in a few words, by the runners that were seen on its bus."""
    taker = _willing(runners, preset, selector)
    if taker is None:
        return _nobody(runners, doubts(bus), preset, selector) if record.wake == "poll" else "no runner has looked yet"
    busy = f"{taker.beacon.runner} is {taker.beacon.state}"
    return f"{busy}, {taker.beacon.queue} in its queue" if taker.beacon.queue else busy


def _willing(runners: list[SeenRunner], preset: str, selector: RunnerSelector) -> SeenRunner | None:
    return next((runner for runner in runners if why_not(runner, preset, selector) is None), None)


def _nobody(runners: list[SeenRunner], doubted: list[str], preset: str, selector: RunnerSelector) -> str:
    refusals = [f"{runner.beacon.runner} {why_not(runner, preset, selector)}" for runner in runners[:4]]
    reasons = "; ".join(refusals + doubted[:4])
    if runners:
        return f"no live runner would take {preset}: {reasons}"
    return f"no runner on this bus counts: {reasons}" if doubted else "no runner has ever been seen on this bus"


def _remedy(
    runners: list[SeenRunner], doubted: list[str], preset: str, selector: RunnerSelector, now: dt.datetime
) -> str:
    """Return what helps against the reasons that were found: waking a machine does not resume a paused runner."""
    if any(why_not(runner, preset, selector) == "is paused" for runner in runners):
        return "on the host: kakeya-runner resume; or send it anyway: --queue"
    if any(runner.live and runner.beacon.not_taking for runner in runners):
        return "on the host: kakeya-runner status; or send it anyway: --queue"
    if any(runner.live for runner in runners):
        return "kakeya-mac runners shows names, labels and presets; or send it anyway: --queue"
    if doubted:
        return DISTRUSTED
    wake = "on the host: kakeya-runner serve; or send it anyway: --queue"
    if any(runner.age_s > CLOCK_DOUBT_S and runner.beacon.state != "stopped" for runner in runners):
        return f"{wake}. If it serves, compare clocks: this machine says {now:%Y-%m-%d %H:%M} UTC"
    return wake
