"""A training curve goes forward, its held-out sequences were not trained on, and its times fit.

A loss on what was trained says nothing; the seed's alignment run had 8.6 on its training prompts and 1.9 on others.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G4-TRAINING", kinds=(kinds.F_THETA_TRAINING,), remedy="Hold sequences out before training; record all steps."
)
def _look(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    rows = report.body["rows"]
    steps = [point["step"] for point in rows["curve"]]
    if any(b <= a for a, b in pairwise(steps)):
        yield Violation("the curve's steps do not increase", "/rows/curve")
    held = [row["sequence_digest"] for row in rows["held_out"]]
    trained = rows["training_digests"]
    if len(set(held)) != len(held) or len(set(trained)) != len(trained):
        yield Violation("a sequence occurs twice", "/rows")
    both = set(held) & set(trained)
    if both:
        yield Violation(f"{len(both)} held-out sequences were trained on", "/rows/held_out")
    losses = {(row["loss_before"], row["loss_after"]) for row in rows["held_out"]}
    if len(rows["held_out"]) > 1 and len(losses) == 1:
        yield Violation("every held-out sequence has one and the same loss", "/rows/held_out")
    if rows["collect_s"] + rows["train_s"] > report.body["wall_s"] + 0.05:
        yield Violation("collecting and training do not fit into the report's wall time", "/rows/train_s")
    first, last = rows["curve"][0]["loss"], rows["curve"][-1]["loss"]
    if last > first:
        yield Violation(f"the training loss rose from {first:g} to {last:g}", "/rows/curve", severity="not_citable")
