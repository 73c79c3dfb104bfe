"""What remote calls cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft
from bridge.gate.interface import Report


def call_times(report: Report) -> Iterator[ClaimDraft]:
    """Yield mean and median seconds of every method an arm called."""
    for row in report.body["rows"]["rpcs"]:
        name = f"rpc_{row['arm']}_{row['method']}".lower()
        seconds = row["seconds"]
        yield ClaimDraft(
            id=name,
            role="informational",
            value=statistics.fmean(seconds),
            unit="s",
            n=len(seconds),
            arms=(row["arm"],),
            wording=(
                f"{row['arm']} {row['method']}: mean {statistics.fmean(seconds) * 1e3:.3f} ms, "
                f"median {statistics.median(seconds) * 1e3:.3f} ms, {len(seconds)} calls"
            ),
        )
