"""Check what a bus costs to look at."""

from __future__ import annotations

from bridge.bus.interface import RunnerBus
from bridge.bus.views import ListingWindow
from bridge.diagnostics import Check
from bridge.limits import LISTING_SMALL_BYTES, PUSH_ANSWER_SMALL_BYTES
from bridge.presets.installed import registry
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
