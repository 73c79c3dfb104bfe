"""Rules on canaries: whether what is injected into a cache reaches the attention."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import F_THETA_TRAINING
from bridge.gate.rule import report_rule


@report_rule(
    "G3-CANARY",
    "outputs",
    kinds=(F_THETA_TRAINING,),
    remedy="Check that the injection reaches the attention it claims to.",
)
def require_canary_effect(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Injected noise changes the logits, an injected identity does not.

    The seed's restoration was a silent no-op: random keys and values changed its logits by exactly 0.0.
    """
    canaries = report.body["rows"]["canaries"]
    noise, same = canaries["noise_logit_change"], canaries["identity_logit_change"]
    most = float(evidence.profile["canary_identity_max"])
    if noise <= 10 * most:
        yield Violation(f"noise changed the logits by {noise:g}: nothing was injected", "/rows/canaries")
    if same > most:
        yield Violation(f"an identity changed the logits by {same:g}, at most {most:g}", "/rows/canaries")
