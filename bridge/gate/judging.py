"""Judge: load, run every rule, recompute every claim, decide.

Knows no rule and no kind by name; a rule that fails to look is itself a finding, so nothing passes by accident.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from bridge import strictjson
from bridge.gate import claims
from bridge.gate.claims.workload import rows_of
from bridge.gate.identity import identity
from bridge.gate.interface import Authority, Evidence, Report, Skip, Violation
from bridge.gate.registry import rules
from bridge.gate.reports.loading import load
from bridge.gate.reports.of_run import load_of_run, profile_of
from bridge.gate.reports.workload import load as load_workload
from bridge.gate.rule import RegisteredRule
from bridge.limits import REPORT_MAX_BYTES
from bridge.records.jobspec import JobSpec
from bridge.records.quotation import Quotation, reason_text, word_of
from bridge.records.run import RunRecord
from bridge.records.verdict import ClaimResult, Decision, Finding, Verdict

FINDINGS_PER_RULE_MAX: Final = 20
_SEVERITIES: Final = ("reject", "violation", "note")
_Stored = TypeVar("_Stored", RunRecord, JobSpec)
_Taken = TypeVar("_Taken", RunRecord, JobSpec, Verdict)
BARE_ID: Final = "0" * 26
RECORD_NAME: Final = "/run.json"  # no report has an absolute path
SPEC_NAME: Final = "/spec.json"
VERDICT_NAME: Final = "/verdict.json"


def judge(
    run_id: str,
    reports: Mapping[str, bytes],
    record: RunRecord | None,
    spec: JobSpec | None,
    *,
    authority: Authority = "host",
    earlier: Mapping[str, Mapping[str, bytes]] | None = None,
) -> Verdict:
    """Return the verdict over one run.

    The arguments are those of `evidence_of`.
    """
    return _verdict(evidence_of(run_id, reports, record, spec, authority=authority, earlier=earlier))


def evidence_of(
    run_id: str,
    reports: Mapping[str, bytes],
    record: RunRecord | None,
    spec: JobSpec | None,
    *,
    authority: Authority = "host",
    earlier: Mapping[str, Mapping[str, bytes]] | None = None,
) -> Evidence:
    """Return everything that rules and claims of one run may look at.

    Args:
        run_id: the run; `BARE_ID` for report files outside a run.
        reports: bytes of every file the run left, by path below its report directory.
        record: what the runner saw; None for report files outside a run.
        spec: what was to run; None for report files outside a run.
        authority: who vouches for the record; see `Evidence`.
        earlier: reports of earlier attempts of the same configuration on the same host, by run id; under `RECORD_NAME`
            the record of one, under `SPEC_NAME` what it was to run, under `VERDICT_NAME` what was said of it.
    """
    before = {run_id: dict(files) for run_id, files in (earlier or {}).items()}
    records = _taken(before, RECORD_NAME, RunRecord)
    specs = _taken(before, SPEC_NAME, JobSpec)
    verdicts = _taken(before, VERDICT_NAME, Verdict)
    loaded, problems = load_of_run(reports, spec)
    return Evidence(
        reports=loaded,
        record=record,
        spec=spec,
        profile=profile_of(loaded, spec),
        run_id=run_id,
        authority=authority,
        files=reports,
        earlier={key: _attempted(value, spec, specs.get(key)) for key, value in before.items() if value},
        earlier_records=records,
        earlier_specs=specs,
        earlier_verdicts=verdicts,
        problems=problems,
        gate=identity(),
    )


def judge_bytes(
    run_id: str,
    reports: Mapping[str, bytes],
    record: bytes | None,
    spec: bytes | None,
    *,
    authority: Authority = "unattested",
) -> Verdict:
    """Return the verdict over the stored bytes of a run; unreadable records are findings.

    The authority is ``unattested`` unless the caller verified an attestation over these bytes.
    """
    broken: list[Finding] = []
    run = _stored(RunRecord, "run.json", record, authority, broken)
    job = _stored(JobSpec, "spec.json", spec, authority, broken)
    verdict = judge(run_id, reports, run, job, authority=authority)
    return verdict if not broken else _decide(verdict, (*broken, *verdict.findings), verdict.claims)


def _stored(
    model: type[_Stored], name: str, data: bytes | None, authority: Authority, broken: list[Finding]
) -> _Stored | None:
    """Return a stored record; None where there is none, or where its bytes are no such record, with a finding."""
    if data is None:
        return None
    try:
        value = model.parse(data, max_bytes=REPORT_MAX_BYTES)
        # No 1.0 for a 1. A field that a newer version added is absent from an older result, but not on its host.
        said = strictjson.decode(data, max_bytes=REPORT_MAX_BYTES)
        if _says(said, value.model_dump(mode="json"), absent=authority != "host"):
            return value
        error: object = "a field is absent, or a number is written in another type"
    except ValueError as raised:  # pydantic's ValidationError is one too
        error = raised
    text = " ".join(str(error).split())[:300]
    message = f"{name} is no record of this gate's schema: {text}"
    remedy = rules()["G0-RECORD"].remedy
    broken.append(
        Finding(
            code="G0-RECORD", severity="reject", premise="bound", report=None, where=name, message=message,
            remedy=remedy,
        )
    )  # fmt: skip
    return None


def _says(said: Any, meant: Any, *, absent: bool) -> bool:
    if isinstance(said, dict) and isinstance(meant, dict):
        whole = absent or said.keys() == meant.keys()
        return whole and all(_says(item, meant[key], absent=absent) for key, item in said.items())
    if isinstance(said, list) and isinstance(meant, list):
        return len(said) == len(meant) and all(_says(a, b, absent=absent) for a, b in zip(said, meant, strict=True))
    return type(said) is type(meant) and bool(said == meant)


def _taken(before: Mapping[str, dict[str, bytes]], name: str, model: type[_Taken]) -> dict[str, _Taken]:
    """Take what lies under a name out of the files of earlier attempts; return it by run id.

    One that this version cannot read, as another one wrote it, is not there: the rule on attempts misses it.
    """
    found = {run_id: data for run_id, files in before.items() if (data := files.pop(name, None)) is not None}
    read: dict[str, _Taken] = {}
    for run_id, data in found.items():
        with contextlib.suppress(ValueError):  # pydantic's ValidationError is one, too
            read[run_id] = model.parse(data, max_bytes=REPORT_MAX_BYTES)
    return read


def _attempted(reports: Mapping[str, bytes], spec: JobSpec | None, then: JobSpec | None) -> tuple[Report, ...]:
    """Return the reports of an earlier attempt; of an owner's own program, none where it left no repeat.

    Args:
        reports: its files.
        spec: of the run that is judged.
        then: of the attempt, which says its seeds.
    """
    if spec is None or spec.workload is None:
        return load(reports)[0]
    if then is None:
        return ()  # the rule on attempts says so
    (report,), problems = load_workload(reports, then, spec.workload)
    if problems:
        read = {path: data for path, data in reports.items() if path not in problems}
        (report,), _ = load_workload(read, then, spec.workload)
    return (report,) if report.value is not None and rows_of(report) else ()


def _verdict(evidence: Evidence) -> Verdict:
    found: list[claims.Held] = []
    skipped: dict[str, str] = {}
    looked: list[RegisteredRule] = []
    for code, entry in rules().items():
        outcome = _look(entry, evidence)
        if isinstance(outcome, Skip):
            skipped[code] = outcome.reason
            continue
        looked.append(entry)
        found += (claims.Held(_finding(entry, violation), violation.claims) for violation in outcome)
    findings = [one.finding for one in found]
    results = claims.results(evidence, found, looked)
    draft = Verdict(
        id=evidence.run_id or BARE_ID,
        decision="rejected",
        headline="",
        why=(),
        profile=str(evidence.profile["name"]),
        gate=evidence.gate or identity(),
        findings=(),
        claims=(),
        reports=tuple(_text(report.path) for report in evidence.reports),
        rules_run=len(looked),
        rules_skipped=dict(sorted(skipped.items())),
        principal=None if evidence.record is None else evidence.record.principal,
        signer=None if evidence.record is None else evidence.record.signer,
        trust_class=None if evidence.spec is None else evidence.spec.trust_class,
    )
    wanted = None if evidence.spec is None else evidence.spec.primary_claim
    verdict = _decide(draft, tuple(findings), results, wanted)
    record = evidence.record
    if record is None or not evidence.nothing_ran or verdict.decision != "rejected":
        return verdict
    return verdict.evolve(headline=Quotation("refused", (_unmeasured(record),)).sentence)


def _unmeasured(record: RunRecord) -> str:
    """Return why there is nothing to judge of a run that has no command on record."""
    # What another runner started and did not end may have run there.
    known = "nothing is known of what ran" if record.reason == "runner_lost" else "nothing ran"
    return f"{known}: {_text(record.message or record.reason)}"


def _look(entry: RegisteredRule, evidence: Evidence) -> list[Violation] | Skip:
    try:
        outcome = entry(evidence)
        if isinstance(outcome, Skip):
            return outcome
        found = list(outcome)
    except Exception as error:  # noqa: BLE001  whatever a report does to a rule is a finding, never a traceback
        text = f"the rule could not judge this: {type(error).__name__}: {error}"[:300]
        return [Violation(text, severity="reject")]
    # The gravest first: what is cut off must never be what decides.
    found.sort(key=lambda violation: _SEVERITIES.index(violation.severity or entry.severity))
    if len(found) > FINDINGS_PER_RULE_MAX:
        rest = len(found) - FINDINGS_PER_RULE_MAX
        found = [*found[:FINDINGS_PER_RULE_MAX], Violation(f"and {rest} more", severity=found[0].severity)]
    return found


def _finding(entry: RegisteredRule, violation: Violation) -> Finding:
    severity = violation.severity or entry.severity
    return Finding(
        code=entry.code,
        severity=severity,
        premise=None if severity == "note" else violation.premise or entry.premise,
        report=None if violation.report is None else _text(violation.report),
        where=_text(violation.where),
        arms=tuple(_text(arm) for arm in violation.arms),
        message=_text(violation.message, 2000),
        remedy=entry.remedy,
    )


def _text(text: str, most: int = 200) -> str:
    """Return text that a record may hold: bounded, without control characters."""
    clean = "".join(c if c.isprintable() or c == " " else "\ufffd" for c in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _decide(
    draft: Verdict, findings: tuple[Finding, ...], results: tuple[ClaimResult, ...], wanted: str | None = None
) -> Verdict:
    refuting = [f for f in findings if f.severity == "reject" or f.premise == "bound"]
    primary = [claim for claim in results if claim.role == "primary"]
    if refuting:
        decision: Decision = "rejected"
        why = [f"{f.premise}: {f.code}: {f.message}" for f in refuting]
        results = tuple(claim.evolve(decision="nothing") for claim in results)
    else:
        decision = _class(primary)
        why = list(dict.fromkeys(reason for claim in primary for reason in claim.why)) if decision != "evidence" else []
        if decision == "recorded" and not primary:
            unmade = [f"{wanted}, the primary claim of its preset, is not made"] if results and wanted else []
            fell = [f"{f.premise}: {f.code}: {f.message}" for f in findings if f.premise]
            why = [*unmade, *(fell or ([] if unmade else ["no claim is made"]))]
    return draft.evolve(
        decision=decision,
        findings=tuple(sorted(findings, key=lambda f: (_SEVERITIES.index(f.severity), f.code))),
        claims=results,
        why=tuple(why[:12]),
        headline=_headline(decision, tuple(why), results),
    )


def _class(primary: list[ClaimResult]) -> Decision:
    """Return the class of a report: the least of its primary claims, `recorded` where one is nothing or none is."""
    found = {claim.decision for claim in primary}
    if not found or "nothing" in found:
        return "recorded"
    return "evidence" if found == {"evidence"} else "valid"


def _headline(decision: Decision, why: tuple[str, ...], results: tuple[ClaimResult, ...]) -> str:
    """Return the first sentence of a verdict: what may be quoted, or what stopped it."""
    quotable = [claim for claim in results if claim.citable and (decision != "evidence" or claim.role == "primary")]
    if quotable:
        also = "" if decision == "evidence" else f" Not the primary claim: {reason_text(why[0])}." if why else ""
        return f"May be quoted: {'; '.join(claim.wording for claim in quotable)}.{also}"
    return Quotation(word_of(decision), tuple(map(reason_text, why))).sentence
