"""The pasteable block of a run: the only wording allowed, and the command that checks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.client.connection.run_bus import pinned_bus, require_same_bus
from bridge.client.document.untrusted import clean_line, markdown_text
from bridge.client.evidence.succession import succession_note
from bridge.client.run.result import Result, backend_of
from bridge.client.run.run import Run
from bridge.errors import UsageError
from bridge.launches.figures import shown
from bridge.records.run import RunRecord
from bridge.records.verdict import ClaimResult
from bridge.run.asked import asked_text
from bridge.trust.judgement import UNCHECKED, TrustAnswer


@dataclass(frozen=True)
class Quote:
    """The lines that may be said, and the claims that may not, each with its reason.

    Attributes:
        lines: the block; empty when nothing may be quoted.
        refused: (claim id, why) of every claim that may not.
    """

    lines: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]

    def data(self) -> dict[str, Any]:
        """Return it as `--json` shows it."""
        return {
            "citable": bool(self.lines),
            "lines": list(self.lines),
            "refused": [{"claim": claim, "why": why} for claim, why in self.refused],
        }


def quote_run(run: Run, *, markdown: bool = False) -> Quote:
    """Return the quote of a run by the keys that count for its bus.

    Raises:
        PendingError: it has no result yet.
        UsageError: it made no claim, or this clone sent it to another bus than the one whose keys are pinned.
    """
    if run.session is None:
        require_same_bus(run.settings, run.id, pinned_bus(run.settings), "quote")
    result, answer = run.result(), run.status().answer
    note = None
    if run.session is not None and answer is not None and answer.signed:
        note = succession_note(run.session.bus, run.id, result.tree.files, run.session.pins())
    return quote(result, answer or UNCHECKED, markdown=markdown, note=note)


def quote(result: Result, answer: TrustAnswer, *, markdown: bool = False, note: str | None = None) -> Quote:
    """Return the quote of an intact result; one that is untrusted or altered gives none.

    Args:
        result: the run's result.
        answer: whether its runner may say what it says.
        markdown: as a quotation for a page.
        note: what is to be said of the runner's other results, None for nothing.

    Raises:
        UsageError: the run made no claim at all.
    """
    verdict, record = result.judged(signed=answer.signed), result.record
    if record is None or not verdict.claims:
        raise UsageError(
            f"run {result.id} claims nothing, so there is nothing to quote", remedy=f"kakeya-mac report {result.id}"
        )
    refused = tuple((claim.id, why_not(claim, verdict.why)) for claim in verdict.claims if not claim.citable)
    citable = [claim for claim in verdict.claims if claim.citable]
    if not citable:
        return Quote((), refused)
    if answer.refused:
        return Quote((), (*refused, *((claim.id, clean_line(answer.text)) for claim in citable)))
    backend = backend_of(result)
    device = " ".join(part for part in (*(backend or ()), record.host.cpu, record.host.os, record.host.machine) if part)
    attempt = record.attempt
    tries = f"attempt {attempt.number} of {attempt.number} on this host" if attempt else "attempts not counted"
    if attempt is not None and attempt.confirms is not None:  # which is counted apart from what it confirms
        tries += f" to confirm run {attempt.confirms}"
    if attempt is not None and attempt.history_since is not None:
        tries += f", counted in full since {attempt.history_since}"
    asked = record.preset if result.request is None else asked_text(result.request)
    code = record.code.identity if record.code is not None else "unknown"
    lines = [
        *(line for claim in citable for line in (claim_line(claim), premise_line(claim))),
        f"{clean_line(asked)} ({verdict.profile}), {tries}, {clean_line(device)}",
        f"asked by {asked_by(record)}",
        f"code {clean_line(code)}, gate {verdict.gate.version} {verdict.gate.digest[:12]}",
        f"run {result.id}, {record.ended}",
        clean_line(answer.text),
        *(() if note is None else (clean_line(note),)),
        f"check: kakeya-mac verify {result.id}",
    ]
    if markdown:
        command = lines.pop().removeprefix("check: ")
        lines = [*(f"> {markdown_text(line)}  " for line in lines), f"> `{command}`"]
    return Quote(tuple(lines), refused)


def asked_by(record: RunRecord) -> str:
    """Return who asked, whose code it was, and every label of the host's policy."""
    who = f"{record.principal}, signed" if record.signer is not None else "an unsigned request"
    trust_class = "unknown" if record.code is None else record.code.trust_class
    labels = f", {', '.join(record.labels)}" if record.labels else ""
    return clean_line(f"{who}; {trust_class} code{labels}")


def claim_line(claim: ClaimResult) -> str:
    """Return wording and interval of a claim."""
    text = clean_line(claim.wording)
    if claim.interval is None or claim.value is None:
        return text
    confidence = "" if claim.confidence is None else f"{claim.confidence * 100:.3g} % "
    number = shown(claim.value, clean_line(claim.unit), claim.interval)
    return f"{text} ({number.value}{number.unit}, {confidence}interval{number.interval}, n = {claim.n})"


def premise_line(claim: ClaimResult) -> str:
    """Return what a claim rests on, and who saw it."""
    seen: dict[str, list[str]] = {}
    for one in claim.premises:
        seen.setdefault(one.seen_by, []).append(one.premise)
    parts = [f"{', '.join(names)} ({clean_line(who)})" for who, names in seen.items()]
    return f"  rests on {'; '.join(parts)}"


def why_not(claim: ClaimResult, verdict_why: tuple[str, ...]) -> str:
    """Return the reasons that keep a claim from being quoted."""
    reasons = claim.why or verdict_why or ("the run is rejected",)
    return clean_line("; ".join(reasons))
