"""Mend the refs of a bus from what this runner has of them; without being told to act, only say what would be done.

A ref that the remote does not give whole is deleted, as it keeps out every push: all of them before any is pushed again
from what is here. Another runner's claim is left to it while its beacon is fresh: it puts it back itself. Where nothing
is here, the other refs of the run say whether anything is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bridge.bus.sides.runner import RunnerBus
from bridge.bus.views import BadRef, DamagedRef
from bridge.errors import REMEDY_MARK, BusError, RemoteError
from bridge.ids import is_id
from bridge.records.claim import Claim
from bridge.request import run_id_of
from bridge.run.lease import beacon_counts_s
from bridge.system.clock import Clock, parse_rfc3339
from bridge.system.remote_words import cause_of


@dataclass(frozen=True)
class RefFinding:
    """What is wrong with a ref, or was done about it, in a line.

    Attributes:
        mended: whether nothing is left to do.
        refused: whether the remote refuses what has to be done.
    """

    text: str
    mended: bool
    refused: bool = False


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
    if act:
        yield from _mend(bus, name, _fresh_runners(bus, name, clock))
    else:
        for damaged in bus.damaged():
            yield RefFinding(f"damaged {damaged.ref}: {damaged.why}", mended=False)
    for bad in bus.repair(dry_run=not act):
        yield _of_bad(bad, act=act)


def _mend(bus: RunnerBus, name: str, fresh: Collection[str]) -> Iterator[RefFinding]:
    """Delete what is damaged, push again what is here, and say of each what became of it.

    Args:
        bus: the bus.
        name: this runner.
        fresh: the other runners that live.
    """
    is_blocked = False
    deleted: list[tuple[DamagedRef, str | None]] = []
    # Of what is here, first what cannot be deleted before somebody removes a file: until then nothing is pushed again.
    for damaged in sorted(bus.damaged(), key=lambda each: (each.is_here, each.tip != "unreadable")):
        if is_blocked and damaged.is_here:  # the remote would take no push of it
            yield RefFinding(f"left {damaged.ref}: it can be pushed again once the files above are gone", mended=False)
            continue
        owner = _runner_of(bus, damaged)
        outcome = bus.delete_damaged(damaged)
        if outcome.gone:
            deleted.append((outcome, owner if owner != name and owner in fresh else None))
        else:
            is_blocked = True
            yield _left(outcome)
    restored = [(damaged if owner else bus.restore_damaged(damaged), owner) for damaged, owner in deleted]
    for damaged, owner in restored:
        yield _of_mended(bus, damaged, owner)


def _left(damaged: DamagedRef) -> RefFinding:
    if damaged.refusal and cause_of(damaged.refusal).is_refusal:
        return _refused(damaged.ref, damaged.refusal)
    file = f"objects/{damaged.oid[:2]}/{damaged.oid[2:]}"
    why = f"it moved meanwhile, or its object is damaged there: remove {file} in that repository"
    return RefFinding(f"left {damaged.ref}: {why}{REMEDY_MARK}then: kakeya-runner bus repair --yes", mended=False)


def _refused(ref: str, words: str) -> RefFinding:
    """Say of a ref that the remote does not let it be deleted."""
    text = f"left {ref}: it has to be deleted, and the remote refuses that: {words}"
    remedy = f"{REMEDY_MARK}have that allowed there, then: kakeya-runner bus repair --yes"
    return RefFinding(f"{text}{remedy}", mended=False, refused=True)


def _kept(damaged: DamagedRef) -> RefFinding:
    """Say of a ref that was pushed again that the remote kept its own bytes of an object which it had."""
    why = "an object that it leads to is damaged there: git fsck in that repository names it; remove its file"
    return RefFinding(f"left {damaged.ref}: {why}{REMEDY_MARK}then: kakeya-runner bus repair --yes", mended=False)


def _of_mended(bus: RunnerBus, damaged: DamagedRef, theirs: str | None) -> RefFinding:
    """Say what became of a damaged ref that was deleted.

    Args:
        bus: the bus.
        damaged: the ref.
        theirs: the living runner whose claim it is, None for any other ref.
    """
    ref, run_id = damaged.ref, _run_of(damaged.ref)
    if damaged.restored:
        return RefFinding(f"restored {ref}", mended=True)
    if not damaged.gone:
        return _kept(damaged)
    if theirs is not None:
        return RefFinding(f"deleted {ref}: left to runner {theirs}, which puts it back", mended=True)
    if run_id is None:
        return RefFinding(f"deleted {ref}: its runner writes it anew", mended=True)
    try:
        return _of_run(bus, damaged, run_id)
    except RemoteError as error:  # what was deleted is said all the same
        return RefFinding(f"deleted {ref}: what is left of its run cannot be told, {error.line}", mended=False)


def _of_run(bus: RunnerBus, damaged: DamagedRef, run_id: str) -> RefFinding:
    """Say what the loss of one of a run's refs comes to, by its other refs; put a delivered branch back.

    Raises:
        RemoteError: the bus did not answer.
    """
    ref, claim = damaged.ref, _claim_of(bus, run_id)
    if claim is None and (branch := bus.branch_with_result(run_id)) is not None:
        return RefFinding(f"deleted {ref}: the run has ended, and its result is on {branch}", mended=True)
    if claim is None and "/log/" in ref:
        return RefFinding(f"deleted {ref}: a result holds its run's whole log", mended=True)
    if claim is None:
        again = f"{REMEDY_MARK}kakeya-mac retry {run_id}"
        return RefFinding(f"deleted {ref}: nobody here has it{again}", mended=False)
    if claim.result_oid is None:
        return RefFinding(f"deleted {ref}: runner {claim.runner} has the run, and ends it", mended=True)
    if run_id_of(ref) != run_id:
        return RefFinding(f"deleted {ref}: the run has ended, and its result is there", mended=True)
    return _of_delivered(bus.restore_copy(damaged, claim.request_oid, claim.result_oid), run_id)


def _of_delivered(outcome: DamagedRef, run_id: str) -> RefFinding:
    """Say what became of a request branch that carried a result."""
    ref = outcome.ref
    if outcome.restored:
        return RefFinding(f"restored {ref} with the run's result", mended=True)
    remedy = f"{REMEDY_MARK}kakeya-mac fetch {run_id}"
    text = f"deleted {ref}: the run has ended, and its result is there without it{remedy}"
    return RefFinding(text, mended=True) if outcome.gone else _kept(outcome)


def _claim_of(bus: RunnerBus, run_id: str) -> Claim | None:
    """Return a run's claim as the bus has it now, None where there is none that counts.

    Raises:
        RemoteError: the bus did not answer.
    """
    try:
        view = bus.read_claim(run_id)
    except BusError:
        return None
    return None if view is None or view.signature.refused else view.claim


def _of_bad(bad: BadRef, *, act: bool) -> RefFinding:
    if bad.by_hand is not None:
        text = f"left {bad.ref}: {bad.why}{REMEDY_MARK}if nobody needs that branch: {bad.by_hand}"
        return RefFinding(text, mended=False)
    if bad.refusal and cause_of(bad.refusal).is_refusal:
        return _refused(bad.ref, bad.refusal)
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
    """Return whose claim on a run that goes on a damaged ref is, as far as that is here; None for anything else."""
    run_id = _run_of(damaged.ref)
    if run_id is None or not damaged.is_here or f"/claim/{run_id}" not in damaged.ref:
        return None
    try:
        view = bus.read_claim(run_id, damaged.oid)
    except BusError:
        return None
    return None if view is None or view.claim.state == "terminal" else view.claim.runner


def _run_of(ref: str) -> str | None:
    tail = ref.rpartition("/")[2]
    return tail if is_id(tail) else run_id_of(ref)
