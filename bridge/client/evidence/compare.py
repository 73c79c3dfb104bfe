"""Two runs side by side: facts as they were written down, and the gate's statistics over what both measured.

It says what differs and never calls a difference between two runs a measurement.
"""

from __future__ import annotations

from bridge.client.document.comparison import Fact, ShownDifference
from bridge.client.evidence.judged import JudgedResult
from bridge.client.run.quotation import quotation
from bridge.gate.comparability import MeasuredRun
from bridge.gate.comparison import Comparison
from bridge.gate.comparison import compare as gate_compare
from bridge.launches.figures import digits_of, shown
from bridge.records.jobspec import ATTACHMENTS
from bridge.records.run import HostRecord
from bridge.records.verdict import ClaimResult

CAUTION = "two runs at two times are not an interleaved comparison: nothing here may be quoted as a difference"
_PREFIX = "reports/"


def compare(a: JudgedResult, b: JudgedResult) -> list[Fact]:
    """Return claims, then facts, of two results."""
    facts_a, facts_b = _facts(a), _facts(b)
    claims_a, claims_b = _claims(a), _claims(b)
    return [
        *(_line(f"claim {key}", claims_a.get(key, "-"), claims_b.get(key, "-")) for key in {**claims_a, **claims_b}),
        *(_line(name, facts_a.get(name, "-"), facts_b.get(name, "-")) for name in {**facts_a, **facts_b}),
    ]


def _facts(side: JudgedResult) -> dict[str, str]:
    record, verdict, spec = side.result.record, side.verdict, side.result.spec
    facts: dict[str, str] = {}
    if record is not None:
        facts |= {
            "preset": record.preset,
            "definition": record.preset_digest[:12],
            "reason": record.reason,
            "runner": record.runner,
        }
        facts |= {"host": f"{record.host.cpu}, {record.host.os} {record.host.os_version} {record.host.machine}"}
        if record.code is not None:
            facts |= {"code": record.code.identity, "packages": record.code.lock_digest[:12]}
        facts |= {"policy": record.policy_digest[:12], "wall_s": f"{record.wall_s:.2f}"}
        facts |= {"models": ", ".join(f"{model.name} {model.sha256[:12]}" for model in record.models) or "none"}
    if spec is not None:
        facts |= {f"param {name}": str(value) for name, value in sorted(spec.params.items())}
        facts |= {"profile": spec.profile}
    if verdict is not None:
        facts |= {
            "quote": quotation(verdict, side.answer).word,
            "gate": f"{verdict.gate.version} {verdict.gate.digest[:12]}",
        }
        facts |= {"findings": ", ".join(sorted({finding.code for finding in verdict.findings})) or "none"}
    return facts


def _claims(side: JudgedResult) -> dict[str, str]:
    return {claim.id: claim_text(claim, side) for claim in side.verdict.claims} if side.verdict is not None else {}


def host_class(host: HostRecord) -> str:
    """Return what two machines share whose times may be held against each other: not their names."""
    return ", ".join((f"{host.cpu_count} x {host.cpu}", f"{host.os} {host.machine}", *sorted(host.devices)))


def measured(a: JudgedResult, b: JudgedResult) -> Comparison:
    """Return what the gate's statistics say of B against A."""
    return gate_compare(_run(a), _run(b))


def shown_differences(comparison: Comparison) -> list[ShownDifference]:
    """Return the differences of a comparison, each with why it may not be quoted."""
    why = tuple(reason.text for reason in comparison.reasons if reason.kind == "weaker")
    return [ShownDifference(**vars(difference), why=why) for difference in comparison.differences]


def noise_text(a: float | None, b: float | None, confidence: float) -> str:
    """Return the noise floors of two runs: what neither could have seen by itself."""
    floors = [
        f"{name} {'not measured (no control)' if share is None else f'{share * 100:.1f} %'}"
        for name, share in (("A", a), ("B", b))
    ]
    return f"{', '.join(floors)} (half-width of A/A', {confidence * 100:.0f} %)"


def _run(side: JudgedResult) -> MeasuredRun:
    result = side.result
    files = result.tree.files
    declared = {name.removeprefix(_PREFIX): data for name, data in files.items() if name.startswith(_PREFIX)}
    if result.spec is not None:
        paths = {output.path for output in result.spec.outputs if output.kind not in ATTACHMENTS}
        declared = {path: data for path, data in declared.items() if path in paths}
    return MeasuredRun(declared, result.record, result.spec, None if side.verdict is None else side.verdict.decision)


def value_text(claim: ClaimResult) -> str:
    """Return a claim's value and interval with their unit."""
    if claim.value is None:
        return "-"
    return str(shown(claim.value, claim.unit, claim.interval, digits=digits_of(claim.detail)))


def claim_text(claim: ClaimResult, side: JudgedResult | None) -> str:
    """Return a claim's value and interval, and where it may not be quoted its word for that."""
    answer = None if side is None else side.quotation_of(claim)
    value = value_text(claim)
    better = claim.detail.get("better")
    value += f", {better} is better" if better and claim.detail.get("aggregate") != "ratio" else ""
    return f"{value}{'' if answer is None or answer.word == 'quotable' else f' ({answer.word})'}"


def _line(name: str, a: str, b: str) -> Fact:
    return Fact(name, a, b, same=a == b)
