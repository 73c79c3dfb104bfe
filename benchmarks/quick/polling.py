"""What one look at the bus costs, in time and bytes, when it is full of requests: among 10 and among 10,000.

Target: waiting among 10,000 at most 5 times as long as among 10. A waiting client asks for its own refs; a runner lists
what is pending, which grows with what is pending and is reported as it is.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.quick.bus_overhead import actor
from benchmarks.quick.figures import Figure
from benchmarks.quick.interleave import interleave, ratio
from bridge.bus.refs import names
from bridge.bus.store.git import GitStore
from bridge.bus.store.route import Route

COUNTS = (10, 10_000)


def measure(repeats: int = 15) -> list[Figure]:
    """Return medians, bytes on the wire and ratios of the same interleaved run."""
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, Callable[[], object]] = {}
        sizes: list[Figure] = []
        for count in COUNTS:
            client, listing, polled = _place(Path(folder) / str(count), count)
            ways[f"one poll of a waiting client among {count}"] = client
            ways[f"one listing of a runner among {count}"] = listing
            sizes += polled
        timings = interleave(ways, repeats)
    small, large = COUNTS
    wait, list_all = "one poll of a waiting client among", "one listing of a runner among"
    return [
        *(Figure(name, round(timing.median_s * 1e3, 1), "ms") for name, timing in timings.items()),
        *sizes,
        Figure("waiting, full to empty", round(ratio(timings, f"{wait} {large}", f"{wait} {small}"), 2), "ratio", 5.0),
        Figure(
            "listing, full to empty", round(ratio(timings, f"{list_all} {large}", f"{list_all} {small}"), 2), "ratio"
        ),
    ]


def _place(place: Path, count: int) -> tuple[Callable[[], object], Callable[[], object], list[Figure]]:
    """Return both looks at a bus with so many pending requests, and what they cost on the wire."""
    client, host = actor(place, "client"), actor(place, "host")
    sent = client.submit()
    lines = [f"{sent.ref.oid} refs/heads/mac-bridge/mlx-env-probe-{number:026d}" for number in range(count)]
    (place / "remote.git" / "packed-refs").write_text("# pack-refs with: sorted\n" + "\n".join(lines) + "\n")
    store = GitStore(Route(str(place / "remote.git"), "loopback", (), is_local=True), place / "poll")
    own = [names.claim_ref(names.DEFAULT_PREFIX, sent.ref.id), sent.ref.ref]
    sizes = [
        Figure(f"bytes of one client's poll among {count}", store.list(own).bytes_received, "bytes"),
        Figure(f"bytes of one runner's listing among {count}", host.bus.snapshot().bytes_received, "bytes"),
    ]
    return lambda: client.bus.view(sent.ref.id), host.bus.snapshot, sizes
