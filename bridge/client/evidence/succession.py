"""Find runs that were left out: compare a signed result with the others that its runner published.

Knows what is still on the bus; what was collected long ago leaves no gap, because the oldest go first.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.bus.interface import SharedBus
from bridge.client.connection.pins import Pins
from bridge.errors import InfrastructureError, IntegrityError
from bridge.trust.attestation import ATTESTATION_FILE, Attested, open_attestation
from bridge.trust.succession import chain_problems

RESULTS_MAX_COUNT = 64


def compare_with_bus(bus: SharedBus, run_id: str, attested: Attested, trusted: Pins) -> tuple[bool, str]:
    """Return whether the results around a run, archived ones too, leave out none of its runner's, and what was seen.

    Raises:
        InfrastructureError: the bus does not answer.
    """
    pending: set[str] = set()
    found = [attested]
    for other_id, oid in sorted(bus.neighbours(run_id, RESULTS_MAX_COUNT).items(), reverse=True):
        try:
            view = bus.read_claim(other_id, oid)
        except InfrastructureError:
            continue  # an unreadable claim shows as the gap it leaves
        if view is None or view.signature.refused:
            continue
        if view.claim.result_oid is None:
            if view.claim.runner == attested.predicate["runner"]:
                pending.add(other_id)
        elif (other := _attested(bus, view.claim.result_oid, trusted)) is not None and _same_chain(other, attested):
            found.append(other)
    return compare_results(found, pending)


def compare_results(found: Sequence[Attested], pending: set[str] | None = None) -> tuple[bool, str]:
    """Return whether these results leave out none of their runners', and what was seen."""
    if problems := chain_problems(found, pending=pending or ()):
        return False, "; ".join(problems)
    numbers = sorted({one.link.sequence for one in found})
    if len(numbers) == 1:
        return True, f"number {numbers[0]} alone; nothing to compare it with"
    return True, f"numbers {numbers[0]} to {numbers[-1]} follow each other"


def _same_chain(one: Attested, other: Attested) -> bool:
    return (one.predicate["runner"], one.link.chain) == (other.predicate["runner"], other.link.chain)


def _attested(bus: SharedBus, result_oid: str, trusted: Pins) -> Attested | None:
    try:
        return open_attestation(bus.read_result(result_oid).files[ATTESTATION_FILE], trusted.keys)
    except (IntegrityError, KeyError):
        return None  # unsigned or not its runner's: it shows as the gap it leaves
