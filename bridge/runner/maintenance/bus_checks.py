"""Check what a bus costs to look at, and whether its remote lets requests in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bridge.bus.sides.runner import RunnerBus
from bridge.bus.views import ListingWindow
from bridge.diagnostics import Check
from bridge.errors import RemoteError
from bridge.limits import LISTING_SMALL_BYTES, PUSH_ANSWER_SMALL_BYTES
from bridge.presets.installed import registry
from bridge.request import DEFAULT_TEMPLATE
from bridge.system.clock import Clock


def check_listing(bus: RunnerBus, clock: Clock) -> Check:
    """Return what one look at a bus costs, and what helps where the remote sends more than it is asked for.

    Raises:
        RemoteError: the bus does not answer.
    """
    seen = bus.snapshot(ListingWindow(int(clock.now().timestamp() * 1000), tuple(registry())))
    if not seen.unasked:
        whole = bus.snapshot().bytes_received
        answered = f"each push is answered with all refs, over protocol v2 too: about {whole} bytes"
        remedy = "set drop_after_days in policy.toml" if whole > PUSH_ANSWER_SMALL_BYTES else None
        text = f"{seen.bytes_received} bytes for the last two days; {answered}"
        return Check("listing", "ok" if remedy is None else "warn", text, remedy)
    text = f"{seen.bytes_received} bytes: the remote speaks git's protocol v0 and sends every ref, whatever is asked"
    remedy = "set drop_after_days in policy.toml; or let the remote speak v2: AcceptEnv GIT_PROTOCOL in its sshd_config"
    return Check("listing", "warn" if seen.bytes_received > LISTING_SMALL_BYTES else "ok", text, remedy)


def check_requests(bus: RunnerBus, template: str = DEFAULT_TEMPLATE) -> Check:
    """Push a probe to where requests go, and return what the remote says of it.

    A rule for branches may stop every requester of a bus whose own refs are free.
    """
    try:
        left = bus.try_requests(template)
    except RemoteError as error:
        return Check("requests", "warn", f"nobody with these rights can ask: {error.message}", error.remedy)
    if left is not None:
        return Check("requests", "ok", f"a probe branch was pushed; {left} may not be deleted, and is used again")
    return Check("requests", "ok", "a probe branch was pushed and removed again")


def check_remote(bus: RunnerBus, clock: Clock) -> Iterator[Check]:
    """Try everything that a bus needs of its remote, and yield what was found.

    Raises:
        RemoteError: the remote does not answer.
    """
    began_s = clock.steady_s()
    record = bus.identity()
    seen = bus.snapshot()
    took_ms = (clock.steady_s() - began_s) * 1000
    protocol = "v0, which sends every ref" if seen.unasked else "v2"
    yield Check("remote", "ok", f"{bus.route} speaks git's protocol {protocol}; two looks took {took_ms:.0f} ms")
    try:
        trial = bus.try_refs()
    except RemoteError as error:
        yield Check("refs", "fail", f"no ref below {record.prefix} can be made: {error.message}", error.remedy)
    else:
        moves = "moved to any commit" if trial.moves else "moved on only"
        deletes = "deleted" if trial.deletes else "not deleted"
        fits = trial.moves or record.renewals == "chain"
        remedy = None if fits else f"allow {record.prefix}* to be forced: claims here are renewed in place"
        text = f"refs below {record.prefix} can be made, {moves}, {deletes}"
        yield Check("refs", "ok" if fits else "fail", text, remedy)
    for pattern in record.request_branches:
        template = pattern.replace("*", "{preset}-{id}")
        found = check_requests(bus, template)
        yield replace(found, name=pattern)
