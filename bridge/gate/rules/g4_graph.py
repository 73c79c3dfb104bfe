"""Blocks of a graph probe are numbered, alternate, advance by what they commit, and keep the bounds.

Positions follow from accepted tokens, so a block cannot be left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule

WARM_UPS = 2


@report_rule(
    "G4-GRAPH", kinds=(kinds.FUSED_GRAPH_PROBE,), remedy="Use `kakeya-engine eval single-graph`, unchanged rows."
)
def _look(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    rows, config = report.body["rows"], report.body["config"]
    blocks = rows["blocks"]
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
