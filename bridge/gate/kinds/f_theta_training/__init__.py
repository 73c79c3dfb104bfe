"""Training of latents: its claims and its rules."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import pairwise

from bridge.gate.claims import CONFIDENCE, ClaimDraft
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import F_THETA_TRAINING
from bridge.gate.rule import report_rule
from bridge.gate.stats.ratio import paired_ratio
from bridge.launches.figures import outward


def recompute(report: Report, _evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield what training did to the loss on sequences it never saw, then on those it saw."""
    curve = report.body["rows"]["curve"]
    area = statistics.fmean(point["loss"] for point in curve)
    yield ClaimDraft(
        id="training_loss",
        role="secondary",
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
    low, high = outward(*ratio.interval(CONFIDENCE), 3)
    yield ClaimDraft.of_ratio(
        "held_out_loss_ratio",
        "primary",
        ratio,
        f"held-out loss after training is {ratio.value:.3f} times that before [{low:.3f}, {high:.3f}] 95 %, "
        f"{ratio.n} sequences",
    )


@report_rule(
    "G4-TRAINING", "outputs", kinds=(F_THETA_TRAINING,), remedy="Hold sequences out before training; record all steps."
)
def require_held_out_sequences(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    """A training curve goes forward, its held-out sequences were not trained on, and its times fit.

    A loss on what was trained says nothing; the seed's alignment run had 8.6 on its training prompts and 1.9 on others.
    """
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
        yield Violation(f"the training loss rose from {first:g} to {last:g}", "/rows/curve", severity="violation")
