"""Rules on canaries: whether what is injected into a cache reaches the attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.gate.facts.model_sizes import shape_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import BOUNDED_RECALL, F_THETA_TRAINING
from bridge.gate.rule import report_rule

_IDENTITY_MOST_FP32: Final = 1e-4
_NOISE_LEAST: Final = 0.1
_CANARIES: Final = "/rows/layer_canaries"


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
    most, rows made of noise by more than 0.1. The dtype is the target's, and the layers are all that the model has of
    full attention: a canary on one layer says nothing of the others.
    """
    most = float(evidence.profile["canary_identity_max"])
    if report.kind == F_THETA_TRAINING:
        found = report.body["rows"]["canaries"]
        changes = (found["identity_logit_change"], found["noise_logit_change"])
        yield from _changes(*changes, (most, 10 * most), "/rows/canaries")
        return
    yield from _canary_target(report, evidence)
    if report.body["config"]["target"]["dtype"] == "float32":
        most = _IDENTITY_MOST_FP32
    seen: set[str] = set()
    for index, row in enumerate(report.body["rows"]["layer_canaries"]):
        where = f"{_CANARIES}/{index}"
        changes = (row["identity_logit_change"], row["noise_logit_change"])
        yield from _changes(*changes, (most, _NOISE_LEAST), where)
        if not row["rows"]:
            yield Violation("no row was given to the layers: nothing was injected", where)
        if row["layer_kind"] in seen:
            yield Violation(f"{row['layer_kind']} occurs twice", where)
        seen.add(row["layer_kind"])


def _canary_target(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """Yield another dtype than the target's, and other layers than the model's of full attention."""
    said, dtype = report.body["config"]["dtype"], report.body["config"]["target"]["dtype"]
    if said != dtype:
        yield Violation(f"measured in {said!r}, the target is {dtype!r}", "/config/dtype")
    shape = shape_of(report, evidence)
    if shape is None or shape.caches is None:
        return
    full = [layer for layer, one in enumerate(shape.caches) if one.window is None]
    met = sorted(layer for row in report.body["rows"]["layer_canaries"] for layer in row["layers"])
    if met != full:
        yield Violation(f"canaries of the layers {met}, the model attends to everything in {full}", _CANARIES)


def _changes(same: float, noise: float, bounds: tuple[float, float], where: str) -> Iterator[Violation]:
    """Yield an identity that changes more than the first bound, and noise that changes no more than the second."""
    if noise <= bounds[1]:
        yield Violation(f"noise changed the logits by {noise:g}: nothing was injected", where)
    if same > bounds[0]:
        yield Violation(f"an identity changed the logits by {same:g}, at most {bounds[0]:g}", where)
