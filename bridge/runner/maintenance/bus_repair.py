"""Mend the refs of a bus from what this runner has of them; without being told to act, only say what would be done.

A ref that the remote does not give whole is deleted, as it keeps out every push, and pushed again where this runner has
it. Another runner's claim is left to it while its beacon is fresh: it puts it back itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bridge.bus.sides.runner import RunnerBus
from bridge.bus.views import BadRef, DamagedRef
from bridge.errors import REMEDY_MARK, BusError
from bridge.ids import is_id
from bridge.request import run_id_of
from bridge.run.lease import beacon_counts_s
from bridge.system.clock import Clock, parse_rfc3339


@dataclass(frozen=True)
class RefFinding:
    """What is wrong with a ref, or was done about it, in a line; and whether nothing is left to do."""

    text: str
    mended: bool


def repair_bus(bus: RunnerBus, name: str, clock: Clock, *, act: bool) -> Iterator[RefFinding]:
    """Yield what is wrong with the refs of a bus, one by one; with `act` after it was mended as far as it can be.

    Args:
        bus: the bus, with this runner's keys.
        name: this runner.
        clock: compared with the times of beacons.
        act: whether to change anything.

    Raises:
        RemoteError: the bus did not answer.
    """
    fresh = _fresh_runners(bus, name, clock)
    for damaged in bus.damaged():
        owner = _runner_of(bus, damaged)
        theirs = owner != name and owner in fresh
        if act:
            yield _mended(bus.mend(damaged, restore=not theirs), owner if theirs else None)
        else:
            yield RefFinding(f"damaged {damaged.ref}: {damaged.why}", mended=False)
    for bad in bus.repair(dry_run=not act):
        yield _of_bad(bad, act=act)


def _mended(damaged: DamagedRef, theirs: str | None) -> RefFinding:
    """Say what became of a damaged ref."""
    ref, run_id = damaged.ref, _run_of(damaged.ref)
    if damaged.restored:
        return RefFinding(f"restored {ref}", mended=True)
    if not damaged.gone:
        file = f"objects/{damaged.oid[:2]}/{damaged.oid[2:]}"
        why = f"it moved meanwhile, or its object is damaged there: remove {file} in that repository"
        return RefFinding(f"left {ref}: {why}{REMEDY_MARK}then: kakeya-runner bus repair --yes", mended=False)
    if theirs is not None:
        return RefFinding(f"deleted {ref}: left to runner {theirs}, which puts it back", mended=True)
    if "/log/" in ref:
        return RefFinding(f"deleted {ref}: a result holds its run's whole log", mended=True)
    if run_id is None:
        return RefFinding(f"deleted {ref}: its runner writes it anew", mended=True)
    again = f"{REMEDY_MARK}kakeya-mac retry {run_id}"
    return RefFinding(f"deleted {ref}: nobody here has it{again}", mended=False)


def _of_bad(bad: BadRef, *, act: bool) -> RefFinding:
    if bad.by_hand is not None:
        text = f"left {bad.ref}: {bad.why}{REMEDY_MARK}if nobody needs that branch: {bad.by_hand}"
        return RefFinding(text, mended=False)
    word = "deleted" if bad.gone else "moved meanwhile" if act else "bad"
    return RefFinding(f"{word} {bad.ref}: {bad.why}", mended=bad.gone)


def _fresh_runners(bus: RunnerBus, name: str, clock: Clock) -> frozenset[str]:
    """Return the other runners whose beacons say that they live."""
    now, record = clock.now(), bus.identity()
    return frozenset(
        beacon.runner
        for _, beacon in bus.read_beacons()
        if beacon.runner != name
        and (now - parse_rfc3339(beacon.time)).total_seconds() < beacon_counts_s(beacon, record)
    )


def _runner_of(bus: RunnerBus, damaged: DamagedRef) -> str | None:
    """Return whose claim a damaged ref is, as far as this machine has it; None for anything else."""
    run_id = _run_of(damaged.ref)
    if run_id is None or not damaged.is_here or f"/claim/{run_id}" not in damaged.ref:
        return None
    try:
        view = bus.read_claim(run_id, damaged.oid)
    except BusError:
        return None
    return None if view is None else view.claim.runner


def _run_of(ref: str) -> str | None:
    tail = ref.rpartition("/")[2]
    return tail if is_id(tail) else run_id_of(ref)
