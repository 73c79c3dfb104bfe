"""The runner's record is of this run and of this job spec.

What was decided and what ran are two documents; every field they share must agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule


@rule("G1-SPEC", remedy="Keep run.json and spec.json of one run together, as the runner wrote them.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    record, spec = evidence.record, evidence.spec
    if record is None or spec is None:
        return Skip("no RunRecord or no JobSpec")
    return _differences(evidence)


def _differences(evidence: Evidence) -> Iterator[Violation]:
    record, spec = evidence.record, evidence.spec
    if record is None or spec is None:
        return
    pairs: dict[str, tuple[object, object]] = {
        "id": (record.id, evidence.run_id),
        "spec.id": (spec.id, evidence.run_id),
        "request_digest": (record.request_digest, spec.request_digest),
        "preset": (record.preset, spec.preset),
        "preset_digest": (record.preset_digest, spec.preset_digest),
        "policy_digest": (record.policy_digest, spec.policy_digest),
        "labels": (record.labels, spec.labels),
        # A secret's value is masked in the record; its name is there.
        "environment": (
            tuple(
                (name, value)
                for (name, value), v in zip(record.environment, spec.environment, strict=False)
                if not v.secret
            ),
            tuple((v.name, v.value) for v in spec.environment if not v.secret),
        ),
        "environment names": (tuple(name for name, _ in record.environment), tuple(v.name for v in spec.environment)),
    }
    for name, (got, wanted) in pairs.items():
        if got != wanted:
            yield Violation(f"{name}: the record says {got!r}, expected {wanted!r}", name)
