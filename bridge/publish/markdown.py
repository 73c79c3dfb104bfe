"""Say in markdown what happened; every text of a workload or a requester is escaped: no mention, no image, no link.

Knows how to quote, not what to think of a verdict.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bridge.durations import measured_text
from bridge.publish.plot import plot_lines
from bridge.records.network import describe_use
from bridge.records.quotation import of_claim
from bridge.run.asked import asked_text

if TYPE_CHECKING:
    from bridge.records.request import Request
    from bridge.records.run import RunRecord, SandboxApplied
    from bridge.records.verdict import Verdict

STOPPED: Final = frozenset({"cancelled", "interrupted"})
"""Endings in which the program was stopped: the gate's findings about missing reports explain nothing more."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&$])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SHOWN_CHARS = 400
_WORD_JOINER = "\u2060"  # breaks @name, #12 and host.tld without being seen


def escape(text: str) -> str:
    """Return text that markdown renders as itself on one line."""
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    plain = _CONTROL.sub(" ", cut)
    plain = re.sub(r"([@#])(?=\w)", rf"\1{_WORD_JOINER}", plain)
    plain = re.sub(r"(?i)(https?|ftp|www)(?=[:.])", rf"\1{_WORD_JOINER}", plain)
    return _SPECIAL.sub(r"\\\1", plain)


def unfinished(reason: str, verdict: Verdict) -> str:
    """Return one line for all findings of a run that was stopped before its end."""
    count = len(verdict.findings)
    codes = ", ".join(dict.fromkeys(finding.code for finding in verdict.findings))
    what = f"{count} finding(s) of the gate ({codes})"
    return f"{reason} before its end, so {what} are not listed; see verdict.json"


def _confinement(applied: SandboxApplied) -> str:
    if applied.reason is None:
        return f"{applied.kind}, as user {applied.uid}{'' if applied.not_held is None else f'; {applied.not_held}'}"
    return f"none, as user {applied.uid}: {applied.reason}"


def summary(record: RunRecord, verdict: Verdict, request: Request | None = None) -> str:
    """Return `summary.md`: claims first, then one table of facts, and findings."""
    program = "not started" if record.program_exit is None else f"exit {record.program_exit}"
    facts = (
        ("run", record.id),
        ("preset", record.preset),
        ("ending", record.reason),
        ("executor", "worked" if record.executor_ok else "did not work"),
        ("program", program),
        ("quote", verdict.headline),
        ("message", record.message or ""),
        ("where", f"{record.runner}, {record.host.os} {record.host.machine}, {record.host.cpu}"),
        ("sandbox", _confinement(record.sandbox)),
        ("network", describe_use(record.sandbox.network, record.sandbox.use) if record.sandbox.network else ""),
        ("attempt", "" if record.attempt is None else str(record.attempt.number)),
        (
            "asked by",
            f"{record.principal}, signed by {record.signer}" if record.signer else f"{record.principal} request",
        ),
        ("code", "" if record.code is None else f"{record.code.origin}, {record.code.trust_class}"),
        ("labels", ", ".join(record.labels)),
        ("wall", f"{measured_text(record.wall_s)} after {measured_text(record.queue_s)} in the queue"),
    )
    lines = [f"# {escape(record.preset if request is None else asked_text(request))}: {escape(record.reason)}"]
    if verdict.claims:
        lines += ["", "## Claims", ""]
    for claim in verdict.claims:
        lines.append(f"- {escape(claim.wording)} ({escape(str(of_claim(claim, verdict)))})")
    if drawn := list(plot_lines(verdict.claims)):
        lines += ["", "```text", *drawn, "```"]
    lines += ["", "## Facts", "", "| fact | value |", "|---|---|"]
    lines += [f"| {name} | {escape(value)} |" for name, value in facts if value]
    if verdict.findings:
        lines += ["", "## Findings", ""]
    if verdict.findings and record.reason in STOPPED:
        return "\n".join([*lines, f"{unfinished(record.reason, verdict)}."]) + "\n"
    lines += [
        f"- {finding.code} {finding.premise or finding.severity}: {escape(finding.message)}"
        for finding in verdict.findings
    ]
    return "\n".join(lines) + "\n"
