"""Rules on canaries: whether what is injected into a cache reaches the attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import BOUNDED_RECALL, F_THETA_TRAINING
from bridge.gate.rule import report_rule

_IDENTITY_MOST_FP32: Final = 1e-4
_NOISE_LEAST: Final = 0.1


@report_rule(
    "G3-CANARY",
    "outputs",
    kinds=(F_THETA_TRAINING, BOUNDED_RECALL),
    remedy="Check that the injection reaches the attention it claims to.",
)
def require_canary_effect(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Injected noise changes the logits, an injected identity does not.

    The seed's restoration was a silent no-op: random keys and values changed its logits by exactly 0.0. Where caches
    are bounded, every kind of layer has its own: rows made again of a layer's inputs change fp32 logits by 1e-4 at
    most, rows made of noise by more than 0.1.
    """
    most = float(evidence.profile["canary_identity_max"])
    if report.kind == F_THETA_TRAINING:
        found = report.body["rows"]["canaries"]
        changes = (found["identity_logit_change"], found["noise_logit_change"])
        yield from _changes(*changes, (most, 10 * most), "/rows/canaries")
        return
    if report.body["config"]["dtype"] == "float32":
        most = _IDENTITY_MOST_FP32
    seen: set[str] = set()
    for index, row in enumerate(report.body["rows"]["layer_canaries"]):
        where = f"/rows/layer_canaries/{index}"
        changes = (row["identity_logit_change"], row["noise_logit_change"])
        yield from _changes(*changes, (most, _NOISE_LEAST), where)
        if not row["rows"]:
            yield Violation("no row was given to the layers: nothing was injected", where)
        if row["layer_kind"] in seen:
            yield Violation(f"{row['layer_kind']} occurs twice", where)
        seen.add(row["layer_kind"])


def _changes(same: float, noise: float, bounds: tuple[float, float], where: str) -> Iterator[Violation]:
    """Yield an identity that changes more than the first bound, and noise that changes no more than the second."""
    if noise <= bounds[1]:
        yield Violation(f"noise changed the logits by {noise:g}: nothing was injected", where)
    if same > bounds[0]:
        yield Violation(f"an identity changed the logits by {same:g}, at most {bounds[0]:g}", where)
