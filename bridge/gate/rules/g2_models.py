"""The models a report names are the ones the runner digested, by the same digest of config and weights.

Only the report says which model was loaded; the runner reads the folder itself, so that other weights under the same
name do not pass for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.records import RunRecord


@report_rule("G2-MODELS", remedy="Load the model of the host's policy, from the folder the policy names.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    if evidence.record is None:
        return
    for model in ("target", "drafter"):
        named = report.body["config"].get(model)
        if isinstance(named, dict) and named.get("digest") is not None:
            yield from _seen(model, str(named.get("name")), str(named["digest"]), evidence, evidence.record)


def _seen(model: str, name: str, digest: str, evidence: Evidence, record: RunRecord) -> Iterator[Violation]:
    """Yield a model that the runner did not digest, or digested to something else."""
    found = [one for one in record.models if one.path.rsplit("/", 1)[-1] == name]
    taken = {one.weights_sha256 for one in found} - {None}
    if not found:
        known = sorted(one.path.rsplit("/", 1)[-1] for one in record.models)
        yield Violation(
            f"{model} {name!r} is none of the models the runner digested: {known or 'none'}",
            f"/config/{model}/name",
            severity="not_citable",
        )
    elif not taken:
        # A record from before this digest was taken has nothing to compare with; a host of today always has.
        yield Violation(
            f"the runner took no digest of the weights of {name!r}",
            f"/config/{model}/digest",
            severity="not_citable" if evidence.authority == "host" else "note",
        )
    elif digest not in taken:
        yield Violation(
            f"{model} {name!r} has the digest {digest[:12]}… in the report, {sorted(filter(None, taken))[0][:12]}… "
            "on the host",
            f"/config/{model}/digest",
        )
