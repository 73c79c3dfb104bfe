"""Runs that another runner says it has: where the claim of one is gone, it was deleted and not given up."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.run.lease import beacon_counts_s
from bridge.runner.connection.link import BusLink
from bridge.system.clock import Clock, parse_rfc3339


def runs_elsewhere(link: BusLink, name: str, beacons: Mapping[str, str], clock: Clock) -> dict[str, str]:
    """Return the names of other runners by the runs that their fresh beacons say go on, or wait for their delivery.

    A beacon counts as a claim of its runner would: one whose signature is refused does not.

    Args:
        link: the bus.
        name: this runner.
        beacons: the tips, by runner name, of a listing that was just made.
        clock: compared with the times of beacons.

    Raises:
        RemoteError: the bus does not answer.
    """
    others = {runner: oid for runner, oid in beacons.items() if runner != name}
    if not others:
        return {}
    with link.lock:
        found = [beacon for _, beacon in link.bus.read_beacons(listed=others)]
    now = clock.now()
    return {
        run_id: beacon.runner
        for beacon in found
        if (now - parse_rfc3339(beacon.time)).total_seconds() < beacon_counts_s(beacon, link.record)
        for run_id in (*beacon.running, *beacon.spooled)
    }
