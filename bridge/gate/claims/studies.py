"""The claims of studies that are rows rather than generations: parity, costs, graphs, training, memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bridge.gate.claims import Draft
from bridge.gate.interface import Evidence, Report
from bridge.gate.stats.ratio import paired_ratio

CONFIDENCE = 0.95


def parity(report: Report, _evidence: Evidence) -> Iterator[Draft]:
    """Yield how many drafted tokens agree, then how many generations."""
    rows, dtype = report.body["rows"], report.body["config"]["target"]["dtype"]
    pairs = [
        (a, b) for block in rows["blocks"] for a, b in zip(block["mlx_tokens"], block["torch_tokens"], strict=False)
    ]
    agreed = sum(a == b for a, b in pairs)
    yield Draft(
        id="agreed_tokens",
        metric="agreed_tokens",
        role="primary",
        value=float(agreed),
        unit="tokens",
        n=len(pairs),
        wording=f"{agreed} of {len(pairs)} drafted tokens agree between mlx and torch, {dtype}",
    )
    whole = [row for row in rows["generations"] if row["mlx_tokens"] == row["torch_tokens"]]
    if rows["generations"]:
        yield Draft(
            id="identical_generations",
            metric="identical_generations",
            role="secondary",
            value=float(len(whole)),
            unit="prompts",
            n=len(rows["generations"]),
            wording=f"{len(whole)} of {len(rows['generations'])} generations are identical, {dtype}",
        )


def costs(report: Report, _evidence: Evidence) -> Iterator[Draft]:
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
        low, high = ratio.interval(CONFIDENCE)
        name = f"verify_{size}_at_{context}"
        yield Draft(
            id=name,
            metric=name,
            role="primary" if (context, size) == (last, widest) else "secondary",
            value=ratio.value,
            interval=(low, high),
            confidence=CONFIDENCE,
            unit="ratio",
            n=ratio.n,
            wording=(
                f"verifying {size} rows after {context} tokens costs {ratio.value:.2f} times decoding one "
                f"[{low:.2f}, {high:.2f}] 95 %, {ratio.n} repeats"
            ),
        )
    yield from _drafts(report)


def _drafts(report: Report) -> Iterator[Draft]:
    for row in report.body["rows"]["draft"]:
        seconds, name = row["seconds"], f"draft_{row['drafted_tokens']}_at_{row['context_tokens']}"
        yield Draft(
            id=name,
            metric=name,
            role="informational",
            value=statistics.fmean(seconds),
            unit="s",
            n=len(seconds),
            wording=(
                f"drafting {row['drafted_tokens']} tokens after {row['context_tokens']}: "
                f"mean {statistics.fmean(seconds) * 1e3:.3f} ms"
            ),
        )


def graph(report: Report, _evidence: Evidence) -> Iterator[Draft]:
    """Yield the mean evaluation time of one graph over that of two evaluations."""
    blocks = [block for block in report.body["rows"]["blocks"] if not block["is_warmup"]]
    times = {mode: [b["eval_s"] for b in blocks if b["mode"] == mode] for mode in ("one_graph", "two_evaluations")}
    if not all(times.values()):
        return
    one, two = (statistics.fmean(times[mode]) for mode in ("one_graph", "two_evaluations"))
    largest = max(times["one_graph"])
    yield Draft(
        id="one_graph_cost",
        metric="one_graph_cost",
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


def training(report: Report, _evidence: Evidence) -> Iterator[Draft]:
    """Yield what training did to the loss on sequences it never saw, then on those it saw."""
    curve = report.body["rows"]["curve"]
    area = statistics.fmean(point["loss"] for point in curve)
    yield Draft(
        id="training_loss",
        metric="training_loss",
        role="informational",
        value=area,
        unit="loss",
        n=len(curve),
        wording=(
            f"training loss from {curve[0]['loss']:.4g} to {curve[-1]['loss']:.4g}, "
            f"mean {area:.4g} over {len(curve)} points"
        ),
    )
    held = report.body["rows"]["held_out"]
    ratio = paired_ratio([row["loss_after"] for row in held], [row["loss_before"] for row in held])
    low, high = ratio.interval(CONFIDENCE)
    yield Draft(
        id="held_out_loss_ratio",
        metric="held_out_loss_ratio",
        role="primary",
        value=ratio.value,
        interval=(low, high),
        confidence=CONFIDENCE,
        unit="ratio",
        n=ratio.n,
        wording=(
            f"held-out loss after training is {ratio.value:.3f} times that before [{low:.3f}, {high:.3f}] 95 %, "
            f"{ratio.n} sequences"
        ),
    )
