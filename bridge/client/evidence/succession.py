"""Say which results of a runner are not shown beside one: a note, never a verdict about the result itself.

Each attestation carries its number and the digest of the one before, so a run that was left out shows as a gap. A gap
has harmless causes too: refs that were deleted, a state that was restored from a copy. Knows what is still on the bus;
what was collected long ago leaves no gap, because the oldest go first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from bridge.bus.sides.shared import SharedBus
from bridge.client.connection.pins import Pins
from bridge.errors import InfrastructureError, IntegrityError
from bridge.ids import short
from bridge.trust.attestation import Attested
from bridge.trust.verifier import judge_result

RESULTS_MAX_COUNT = 64
_SET_BACK: Final = "each result is whole by itself, and the state of {runner} was set back"


def compare_with_bus(bus: SharedBus, run_id: str, attested: Attested, trusted: Pins) -> tuple[bool, str]:
    """Return whether the results around a run, archived ones too, leave out none of its runner's, and what was seen.

    Raises:
        InfrastructureError: the bus does not answer.
    """
    pending: set[str] = set()
    results = [attested]
    near = bus.neighbours(run_id, attested.runner, RESULTS_MAX_COUNT)
    for other_id, oid in sorted(near.claims.items(), reverse=True):
        try:
            view = bus.read_claim(other_id, oid)
        except InfrastructureError:
            continue  # an unreadable claim shows as the gap it leaves
        if view is None or view.signature.refused:
            continue
        if view.claim.result_oid is None:
            pending.add(other_id)
        elif (other := _attested(bus, view.claim.result_oid, trusted)) is not None and _same_chain(other, attested):
            results.append(other)
    whole, text = compare_results(results, pending)
    if near.left:
        text += f"; looked at the {near.looked} claims nearest in time, {near.left} more were left"
    return whole, text


def compare_results(results: Sequence[Attested], pending: set[str] | None = None) -> tuple[bool, str]:
    """Return whether these results leave out none of their runners', and what was seen."""
    if notes := chain_notes(results, pending=pending or ()):
        return False, "; ".join(notes)
    numbers = sorted({result.link.sequence for result in results})
    if len(numbers) == 1:
        return True, f"number {numbers[0]} alone; nothing to compare it with"
    return True, f"numbers {numbers[0]} to {numbers[-1]} follow each other"


def _same_chain(first: Attested, other: Attested) -> bool:
    return (first.predicate["runner"], first.link.chain) == (other.predicate["runner"], other.link.chain)


def _attested(bus: SharedBus, result_oid: str, trusted: Pins) -> Attested | None:
    try:
        judged = judge_result(bus.read_result(result_oid).files, trusted.authority)
    except IntegrityError:
        return None
    return judged.attested if judged.answer.signed else None  # any other shows as the gap it leaves


def succession_note(bus: SharedBus, run_id: str, files: Mapping[str, bytes], trusted: Pins) -> str | None:
    """Return what is to be said beside a signed result of the others of its runner, None where nothing is.

    Raises:
        InfrastructureError: the bus does not answer.
    """
    judged = judge_result(files, trusted.authority)
    if judged.attested is None or not judged.answer.signed:
        return None
    whole, text = compare_with_bus(bus, run_id, judged.attested, trusted)
    return None if whole else text


def chain_notes(attested: Sequence[Attested], *, pending: Collection[str] = ()) -> list[str]:
    """Return what these attestations show of others, each runner's chain on its own.

    Args:
        attested: in any order; the same one twice is one.
        pending: runs that are known to be unfinished: each has a number that is given out, its result has yet to come.
    """
    results = {result.digest: result for result in attested}.values()
    notes: list[str] = []
    for chain in sorted({(result.predicate["runner"], result.link.chain) for result in results}):
        members = [result for result in results if (result.predicate["runner"], result.link.chain) == chain]
        ordered = sorted(members, key=lambda result: (result.link.sequence, result.digest))
        void = frozenset(number for result in members for number in result.link.void)
        for before, after in pairwise(ordered):
            notes += _between(before, after, void, pending)
    return notes


def _between(before: Attested, after: Attested, void: frozenset[int], pending: Collection[str]) -> Iterator[str]:
    runner, expected = after.predicate["runner"], before.link.sequence + 1
    if after.link.sequence < expected:
        yield f"{_SET_BACK.format(runner=runner)}: it gave out number {after.link.sequence} twice"
    elif after.link.sequence == expected:
        if after.link.previous != before.digest:
            yield f"{_SET_BACK.format(runner=runner)} before it gave out number {expected}"
    else:
        missing = [number for number in range(expected, after.link.sequence) if number not in void]
        # An unfinished run excuses its own number and no other.
        excused = len(pending) if after.link.previous_run in pending else 0
        if len(missing) > excused:
            which = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
            last = short(after.link.previous_run) if after.link.previous_run else "unknown"
            yield f"not shown: {which} of {runner} (before {after.link.sequence} came run {last})"
