"""Find attestations of a runner that are missing, doubled or out of order.

Each carries its number and the digest of the one before, so a run that was left out shows as a gap. Knows envelopes
that were opened already; nothing about buses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from bridge.ids import short
from bridge.trust.attestation import Attested


def chain_problems(attested: Sequence[Attested], *, pending: Collection[str] = ()) -> list[str]:
    """Return what is wrong with these attestations, each runner's chain on its own.

    Args:
        attested: in any order; the same one twice is one.
        pending: runs that are known to be unfinished: each has a number that is given out, its result has yet to come.
    """
    found = {one.digest: one for one in attested}.values()
    problems: list[str] = []
    for chain in sorted({(one.predicate["runner"], one.link.chain) for one in found}):
        members = [one for one in found if (one.predicate["runner"], one.link.chain) == chain]
        ordered = sorted(members, key=lambda one: (one.link.sequence, one.digest))
        void = frozenset(number for one in members for number in one.link.void)
        for before, after in pairwise(ordered):
            problems += _between(before, after, void, pending)
    return problems


def _between(before: Attested, after: Attested, void: frozenset[int], pending: Collection[str]) -> Iterator[str]:
    runner, expected = after.predicate["runner"], before.link.sequence + 1
    if after.link.sequence < expected:
        yield f"two attestations of {runner} carry the number {after.link.sequence}"
    elif after.link.sequence == expected:
        if after.link.previous != before.digest:
            yield f"attestation {expected} of {runner} does not follow the shown attestation {before.link.sequence}"
    else:
        missing = [number for number in range(expected, after.link.sequence) if number not in void]
        # An unfinished run excuses its own number and no other.
        excused = len(pending) if after.link.previous_run in pending else 0
        if len(missing) > excused:
            which = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
            last = short(after.link.previous_run) if after.link.previous_run else "unknown"
            yield f"attestation {which} of {runner} is missing (before {after.link.sequence} came run {last})"
