"""Beacons over a store: one chain of commits a runner, read without its history.

The chain begins anew every BEACON_CHAIN_COUNT beacons, so that the history of a runner that idles for years stays
small. Below ``refs/heads`` it never does: shared remotes refuse a branch that does not descend from its tip.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from bridge.bus.content import commits
from bridge.bus.refs import names
from bridge.bus.refs.known_beacons import KnownBeacons
from bridge.bus.store.gather import Gatherer, Tip, WorkBudget
from bridge.bus.store.interface import MalformedObjectError, Reader, RefStore, RefUpdate
from bridge.bus.store.quarantine import Quarantine
from bridge.bus.store.swap import SwapResult, swap, tips_of
from bridge.limits import BEACON_CHAIN_COUNT, MIB
from bridge.records.bus import Beacon
from bridge.system.clock import parse_rfc3339
from bridge.system.gitobjects import Commit
from bridge.trust.judgement import TrustAnswer
from bridge.trust.seals import BusSeals

_USE: Final = "beacons"
_READ_CALLS: Final = 24  # fetches of one reading: enough to find several bad beacons among good ones


class BeaconRefs:
    """The beacon refs of one bus.

    Args:
        store: the remote.
        prefix: of the runner-written refs.
        known_beacons: what was brought when the bus was opened.
    """

    def __init__(
        self, store: RefStore, prefix: str, seals: BusSeals, quarantine: Quarantine, known_beacons: KnownBeacons
    ) -> None:
        self._store, self._prefix, self._seals = store, prefix, seals
        self._quarantine, self._known_beacons = quarantine, known_beacons
        self._tips = Gatherer(store, quarantine, _USE, batch_max_bytes=4 * MIB, one_max_bytes=MIB)
        self._mine: dict[str, str | None] = {}
        self._sent: dict[str, str] = {}
        self._read: dict[str, tuple[Beacon, Commit]] = {}
        self._newest: dict[str, int] = {}

    def over(self, store: RefStore) -> BeaconRefs:
        """Return what is known here of this runner's own beacons, over another store of the same remote."""
        other = BeaconRefs(store, self._prefix, self._seals, self._quarantine, self._known_beacons)
        other._mine, other._sent = self._mine, self._sent
        return other

    def prepare(self, beacon: Beacon) -> RefUpdate:
        """Build a beacon's commit on top of the runner's last one and return the update that sends it."""
        ref = names.beacon_ref(self._prefix, beacon.runner)
        if ref not in self._mine:
            self._mine[ref] = tips_of(self._store, [ref]).get(ref)
        before = self._mine[ref]
        if beacon.sequence % BEACON_CHAIN_COUNT == 0 and not self._prefix.startswith("refs/heads/"):
            before = None
        parents = commits.parents_at(self._store, ref, before, MIB)  # where it moved, the swap will say where to
        head, objects = commits.beacon_commit(
            beacon, parents, self._seals.sign("beacon", ref, beacon.runner, parents, beacon), self._store.committer
        )
        self._store.write(objects)
        return RefUpdate(ref, head.oid, self._mine[ref])

    def acknowledge(self, update: RefUpdate, outcome: SwapResult | None) -> None:
        """Note the outcome of the update that `prepare` returned."""
        if outcome is not None:
            self._mine[update.ref] = update.new if outcome.landed else outcome.tip
            if outcome.landed and update.new is not None:
                self._sent[update.ref] = update.new

    def withdraw(self, runner: str) -> bool:
        """Delete a runner's beacon where it is still the one that was sent from here; return whether none is left.

        Raises:
            RemoteError: it cannot be told.
        """
        ref = names.beacon_ref(self._prefix, runner)
        before = self._sent.pop(ref, None)
        if before is None:
            return ref not in tips_of(self._store, [ref])
        outcome = swap(self._store, [RefUpdate(ref, None, before)], authority=ref)[ref]
        self._mine[ref] = outcome.tip
        return outcome.tip is None

    def read(self, listed: Mapping[str, str] | None = None) -> tuple[tuple[str, Beacon], ...]:
        """Return (tip, beacon) of every runner whose beacon is readable, is its own, and is not refused.

        A remote of protocol v0 gives only what is at a ref: what has moved on since it was listed is listed again.

        Args:
            listed: the tips of the beacons by ref, where they were listed just now; None lists them.
        """
        budget = WorkBudget(_READ_CALLS)
        tips = self._listed() if listed is None else self._by_name(listed)
        if not self._gather(tips, budget):
            tips = self._listed()
            self._gather(tips, budget)
        self._read = {oid: self._read[oid] for oid in tips.values() if oid in self._read}
        return tuple(
            (oid, self._read[oid][0])
            for name, oid in sorted(tips.items())
            # A beacon pushed again at another runner's ref is nobody's.
            if oid in self._read and self._read[oid][0].runner == name and not self._verify(name, oid).refused
        )

    def silent_for(self, seconds: float, now: dt.datetime) -> list[tuple[str, str]]:
        """Return the beacon refs, with their tips, whose runners said nothing for so long."""
        return [
            (names.beacon_ref(self._prefix, beacon.runner), oid)
            for oid, beacon in self.read()
            if (now - parse_rfc3339(beacon.time)).total_seconds() > seconds
        ]

    def _listed(self) -> dict[str, str]:
        return self._by_name(self._store.list([names.beacon_ref(self._prefix, "")]).refs)

    def _by_name(self, listed: Mapping[str, str]) -> dict[str, str]:
        named = ((names.runner_name_of(self._prefix, ref), oid) for ref, oid in listed.items())
        return {name: oid for name, oid in named if name is not None}

    def _gather(self, tips: Mapping[str, str], budget: WorkBudget) -> bool:
        """Read what is new; return whether the remote gave all of it, or what it gave is no good for ever."""
        for name, oid in tips.items():
            beacon = self._known_beacons.at(names.beacon_ref(self._prefix, name), oid)
            if beacon is not None and beacon[0].runner == name:
                self._read[oid] = beacon
        fresh = [Tip(names.beacon_ref(self._prefix, name), oid) for name, oid in tips.items() if oid not in self._read]
        if fresh:
            self._tips.gather(fresh, budget, self._take)
        return all(oid in self._read or self._quarantine.reason(_USE, oid) is not None for oid in tips.values())

    def _take(self, reader: Reader, tip: Tip) -> None:
        beacon, head = commits.read_record(reader, tip.oid, commits.BEACON_FILE, Beacon)
        if names.beacon_ref(self._prefix, beacon.runner) != tip.ref:
            raise MalformedObjectError(f"holds a beacon of runner {beacon.runner}")
        self._read[tip.oid] = (beacon, head)

    def _verify(self, name: str, oid: str) -> TrustAnswer:
        """Return the state of a beacon's seal; a verified one with a lower number than one seen before is a replay."""
        beacon, head = self._read[oid]
        ref = names.beacon_ref(self._prefix, name)
        signature = self._seals.verify("beacon", ref, runner=name, head=head, record=beacon)
        newest = self._newest.get(name, -1)
        if signature.signed and beacon.sequence < newest:
            signature = TrustAnswer("untrusted", f"an old one again: number {beacon.sequence}, {newest} was seen")
        elif signature.signed:
            self._newest[name] = beacon.sequence
        self._seals.forget("beacon", name)
        self._seals.note("beacon", name, ref, oid, signature)
        return signature
