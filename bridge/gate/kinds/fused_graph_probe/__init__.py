"""One graph or two evaluations: its claims and its rules."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from typing import cast

from bridge.gate.claims import ClaimDraft
from bridge.gate.declared.row_views import StatedFusedGraphProbeBlock
from bridge.gate.facts.roofline import forward_rate, most_flops
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import FUSED_GRAPH_PROBE
from bridge.gate.rule import report_rule

WARM_UPS = 2


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


@report_rule(
    "G4-GRAPH", "ratio", kinds=(FUSED_GRAPH_PROBE,), remedy="Use `kakeya-engine eval single-graph`, unchanged rows."
)
def require_block_sequence(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    """Blocks of a graph probe are numbered, alternate, advance by what they commit, and keep the bounds.

    Positions follow from accepted tokens, so a block cannot be left out.
    """
    rows, config = report.body["rows"], report.body["config"]
    blocks = blocks_of(report)
    for index, block in enumerate(blocks):
        where = f"/rows/blocks/{index}"
        mode = "one_graph" if index % 2 else "two_evaluations"
        if (block["index"], block["mode"], block["is_warmup"]) != (index, mode, index < WARM_UPS):
            yield Violation(f"block {block['index']} {block['mode']}, expected block {index} {mode}", where)
        if block["accepted"] > block["drafted"]:
            yield Violation("more accepted than drafted", where)
        if block["drafted"] != config["depth"]:
            yield Violation(f"{block['drafted']} drafted at a depth of {config['depth']}", where)
        if index + 1 < len(blocks) and blocks[index + 1]["position"] != block["position"] + 1 + block["accepted"]:
            yield Violation(f"the next block starts at {blocks[index + 1]['position']}", where)
    if rows["asked_blocks"] != config["blocks"] or rows["limit_s"] != config["limit_s"]:
        yield Violation("the bounds differ between rows and config", "/rows")
    if len(blocks) > rows["asked_blocks"]:
        yield Violation(f"{len(blocks)} blocks, {rows['asked_blocks']} were asked", "/rows/blocks")
    spent_s = sum(block["eval_s"] for block in blocks)
    if spent_s > report.body["wall_s"] + 0.01:
        yield Violation(f"{spent_s:.3f} s of blocks do not fit into {report.body['wall_s']:.3f} s", "/rows/blocks")
    if len(blocks) < rows["asked_blocks"] and spent_s < 0.5 * rows["limit_s"]:
        yield Violation(
            f"{len(blocks)} of {rows['asked_blocks']} blocks although the limit was not near", "/rows/blocks"
        )


@report_rule(
    "G5-GRAPH", "ratio", severity="violation", kinds=(FUSED_GRAPH_PROBE,), remedy="Raise --blocks or --limit-s."
)
def require_timed_blocks(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Both ways of evaluating were timed often enough.

    A mean of two blocks is their mean; the probe ends at a time limit, so somebody must count what it timed. No clock
    gives every block the same time, and no machine computes one in less than its multiplications take.
    """
    least = int(evidence.profile["cost_repeats_min"])
    counts = Counter(block["mode"] for block in blocks_of(report) if not block["is_warmup"])
    for mode in ("two_evaluations", "one_graph"):
        if counts[mode] < least:
            yield Violation(f"{counts[mode]} blocks of {mode}, at least {least} are asked", "/rows/blocks")
        seconds = [b["eval_s"] for b in blocks_of(report) if b["mode"] == mode and not b["is_warmup"]]
        if len(seconds) > 1 and min(seconds) == max(seconds):
            yield Violation(
                f"{len(seconds)} blocks of {mode} took {seconds[0]!r} s each: no clock says that",
                "/rows/blocks",
                severity="reject",
            )
        if seconds and forward_rate(report, evidence, 1, min(seconds)) > most_flops(report, evidence):
            yield Violation(
                f"a block of {mode} in {min(seconds):.2e} s is beyond this machine", "/rows/blocks", severity="reject"
            )
