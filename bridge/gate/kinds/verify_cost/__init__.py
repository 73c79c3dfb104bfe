"""Cost of verifying and drafting: its claims, which nobody quotes: no turns are handed out for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bridge.gate.claims import CONFIDENCE, ClaimDraft
from bridge.gate.interface import Evidence, Report
from bridge.gate.stats.ratio import paired_ratio
from bridge.launches.figures import outward


def recompute(report: Report, _evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the cost of L rows over that of one, per context; the longest context at eight rows is the primary one."""
    verify = report.body["rows"]["verify"]
    single = {row["context_tokens"]: row["seconds"] for row in verify if row["rows"] == 1}
    last = max(single, default=0)
    widest = max((row["rows"] for row in verify if row["context_tokens"] == last and row["rows"] <= 8), default=0)
    for row in verify:
        context, size = row["context_tokens"], row["rows"]
        if size == 1 or context not in single or len(row["seconds"]) != len(single[context]) or len(row["seconds"]) < 2:
            continue
        ratio = paired_ratio(row["seconds"], single[context])
        low, high = outward(*ratio.interval(CONFIDENCE), 2)
        name = f"verify_{size}_at_{context}"
        yield ClaimDraft.of_ratio(
            name,
            "primary" if (context, size) == (last, widest) else "secondary",
            ratio,
            f"verifying {size} rows after {context} tokens costs {ratio.value:.2f} times decoding one "
            f"[{low:.2f}, {high:.2f}] 95 %, {ratio.n} repeats",
        )
    yield from _drafts(report)


def _drafts(report: Report) -> Iterator[ClaimDraft]:
    for row in report.body["rows"]["draft"]:
        seconds, name = row["seconds"], f"draft_{row['drafted_tokens']}_at_{row['context_tokens']}"
        yield ClaimDraft(
            id=name,
            role="secondary",
            value=statistics.fmean(seconds),
            unit="s",
            n=len(seconds),
            wording=(
                f"drafting {row['drafted_tokens']} tokens after {row['context_tokens']}: "
                f"mean {statistics.fmean(seconds) * 1e3:.3f} ms"
            ),
        )
