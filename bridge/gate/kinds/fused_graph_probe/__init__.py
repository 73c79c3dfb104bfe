"""One graph or two evaluations: its claims, which nobody quotes: no turns are handed out for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import cast

from bridge.gate.claims import ClaimDraft
from bridge.gate.declared.row_views import StatedFusedGraphProbeBlock
from bridge.gate.interface import Evidence, Report


def blocks_of(report: Report) -> list[StatedFusedGraphProbeBlock]:
    """Return the blocks of a report of this kind; another kind has others under this name."""
    return cast("list[StatedFusedGraphProbeBlock]", report.body["rows"]["blocks"])


def recompute(report: Report, _evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the mean evaluation time of one graph over that of two evaluations."""
    blocks = [block for block in blocks_of(report) if not block["is_warmup"]]
    times = {mode: [b["eval_s"] for b in blocks if b["mode"] == mode] for mode in ("one_graph", "two_evaluations")}
    if not all(times.values()):
        return
    one, two = (statistics.fmean(times[mode]) for mode in ("one_graph", "two_evaluations"))
    largest = max(times["one_graph"])
    yield ClaimDraft(
        id="one_graph_cost",
        role="primary",
        value=one / two,
        unit="ratio",
        n=min(len(found) for found in times.values()),
        wording=(
            f"one graph takes {one / two:.3f} times two evaluations (means {one * 1e3:.3f} and {two * 1e3:.3f} ms, "
            f"longest {largest * 1e3:.3f} ms, {len(blocks)} blocks)"
        ),
        detail={"median_ratio": statistics.median(times["one_graph"]) / statistics.median(times["two_evaluations"])},
    )
