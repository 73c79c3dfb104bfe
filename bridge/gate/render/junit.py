"""A verdict as JUnit XML: a test case per claim and per violated rule, for tools that show nothing else."""

from __future__ import annotations

from bridge.records.verdict import Verdict


def junit(verdict: Verdict) -> str:
    """Return one test suite; a rejecting finding is a failure, a missing premise is skipped with its reason."""
    cases: list[str] = []
    failures = skipped = 0
    for finding in verdict.findings:
        body = ""
        if finding.severity == "reject":
            failures += 1
            body = f"<failure message={_quoted(finding.message)}>{_escaped(finding.remedy)}</failure>"
        elif finding.severity == "violation":
            skipped += 1
            body = f"<skipped message={_quoted(finding.message)}/>"
        name = " ".join(part for part in (finding.code, finding.report or "", finding.where) if part)
        cases.append(f'<testcase classname="gate" name={_quoted(name)}>{body}</testcase>')
    for claim in verdict.claims:
        body = ""
        if not claim.citable:
            skipped += 1
            body = f"<skipped message={_quoted('; '.join(claim.why))}/>"
        name = f"{claim.id}: {claim.wording}"
        cases.append(f'<testcase classname="claim" name={_quoted(name)}>{body}</testcase>')
    head = f'<testsuite name="kakeya-gate" tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}">'
    return "\n".join(['<?xml version="1.0" encoding="utf-8"?>', head, *cases, "</testsuite>"]) + "\n"


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    from html import escape  # which loads a table of all entities, for one function

    return escape(_clean(text))
