"""The rule on models: the report's are the runner's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bridge.gate.facts.model_sizes import shape_of
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.records.run import ModelShape, RunRecord


@report_rule("G2-MODELS", "inputs", remedy="Load the model of the host's policy, from the folder the policy names.")
def compare_models(report: Report, evidence: Evidence) -> Iterator[Violation]:
    """The models a report names are those the runner digested, by the same digest of config and weights.

    Only the report says which model was loaded; the runner reads the folder itself, so that other weights under the
    same name do not pass for it. It counts parameters and vocabulary, too: how many there are is its word.
    """
    if evidence.record is None:
        return
    for model in ("target", "drafter"):
        named = report.body["config"].get(model)
        if isinstance(named, dict) and named.get("digest") is not None:
            yield from _digest(model, str(named.get("name")), str(named["digest"]), evidence, evidence.record)
    target = report.body["config"].get("target")
    if isinstance(target, dict):
        yield from _choice(str(target["name"]), evidence.record)
        shape = shape_of(report, evidence)
        if shape is not None:
            yield from _sizes(target, shape, str(report.body["environment"]["backend"]))
        elif any(model.weights_sha256 == target["digest"] for model in evidence.record.models):
            yield Violation(
                f"the runner could not read the sizes of {target['name']!r} from its folder",
                "/config/target",
                severity="violation" if evidence.authority == "host" else "note",
            )


def _choice(name: str, record: RunRecord) -> Iterator[Violation]:
    """Yield a target that is another of the digested models: the host decides which one is."""
    chosen = dict(record.environment).get("KAKEYA_TARGET") or name
    known = {one.path.rsplit("/", 1)[-1] for one in record.models}
    if chosen.rstrip("/").rsplit("/", 1)[-1] != name and name in known:
        yield Violation(f"the target is {name!r}, the host chose {chosen!r}", "/config/target/name")


def _sizes(target: Mapping[str, Any], shape: ModelShape, backend: str) -> Iterator[Violation]:
    """Yield a vocabulary or a dtype that is not the folder's."""
    if target["vocab_size"] != shape.vocabulary:
        yield Violation(
            f"a vocabulary of {target['vocab_size']}, the folder's is {shape.vocabulary}", "/config/target/vocab_size"
        )
    # transformers widens what it loads onto a processor to float32.
    if shape.dtype not in {None, target["dtype"]} and (backend, target["dtype"]) != ("torch", "float32"):
        yield Violation(
            f"dtype {target['dtype']}, the folder's weights are {shape.dtype}",
            "/config/target/dtype",
            severity="violation",
        )


def _digest(model: str, name: str, digest: str, evidence: Evidence, record: RunRecord) -> Iterator[Violation]:
    """Yield a model that the runner did not digest, or digested to something else."""
    found = [one for one in record.models if one.path.rsplit("/", 1)[-1] == name]
    taken = {one.weights_sha256 for one in found} - {None}
    if not found:
        known = sorted(one.path.rsplit("/", 1)[-1] for one in record.models)
        yield Violation(
            f"{model} {name!r} is none of the models the runner digested: {known or 'none'}",
            f"/config/{model}/name",
            severity="violation",
        )
    elif not taken:
        # A record from before this digest was taken has nothing to compare with; a host of today always has.
        yield Violation(
            f"the runner took no digest of the weights of {name!r}",
            f"/config/{model}/digest",
            severity="violation" if evidence.authority == "host" else "note",
        )
    elif digest not in taken:
        yield Violation(
            f"{model} {name!r} has the digest {digest[:12]}… in the report, {sorted(filter(None, taken))[0][:12]}… "
            "on the host",
            f"/config/{model}/digest",
        )
