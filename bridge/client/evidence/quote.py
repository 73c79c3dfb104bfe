"""The pasteable sentence of a claim: the only wording allowed, and the command that checks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bridge.client.connection.run_bus import pinned_bus, require_same_bus
from bridge.client.document.quoting import QuoteData, RefusedRow
from bridge.client.document.untrusted import clean_line, markdown_text
from bridge.client.evidence.succession import succession_note
from bridge.client.run.quotation import quotation
from bridge.client.run.result import Result, backend_of
from bridge.client.run.run import Run
from bridge.errors import UsageError
from bridge.gate.facts.accelerators import device_words
from bridge.launches.attempts import LOOK_DAYS
from bridge.records.quotation import Quotation
from bridge.records.run import Attempt, RunRecord
from bridge.records.verdict import ClaimResult
from bridge.run.asked import asked_text
from bridge.trust.judgement import UNCHECKED, TrustAnswer


def quote_run(run: Run, *, markdown: bool = False) -> QuoteData:
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


def quote(result: Result, answer: TrustAnswer, *, markdown: bool = False, note: str | None = None) -> QuoteData:
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
    answers = [(claim, quotation(verdict, answer, claim)) for claim in verdict.claims]
    refused = [
        RefusedRow(claim.id, clean_line(text_of(answer))) for claim, answer in answers if answer.word != "quotable"
    ]
    quotable = [claim for claim, answer in answers if answer.word == "quotable"]
    if not quotable:
        return QuoteData(quotation(verdict, answer).word, [], refused)
    lines = [sentence(claim, result, record, answer) for claim in quotable]
    lines += [] if note is None else [clean_line(note)]
    return QuoteData("quotable", pasteable(lines, f"kakeya-mac verify {result.id}", markdown=markdown), refused)


def pasteable(sentences: Sequence[str], command: str, *, markdown: bool) -> list[str]:
    """Return sentences and the command that checks them, for a text or as a quotation for a page."""
    if markdown:
        return [*(f"> {markdown_text(line)}  " for line in sentences), f"> `{command}`"]
    return [*sentences, f"check: {command}"]


def sentence(claim: ClaimResult, result: Result, record: RunRecord, answer: TrustAnswer) -> str:
    """Return a claim with all that a reader needs to look it up: what was asked, on what, and whose word it is."""
    question, where = asked_and_where(result, record)
    return clean_line("; ".join([f"{question}: {claim.wording}", *where, answer.text, f"run {result.id}"]))


def asked_and_where(result: Result, record: RunRecord) -> tuple[str, list[str]]:
    """Return what was asked, and on what and for whom it was measured, in words."""
    question = record.preset if result.request is None else asked_text(result.request)
    backend = backend_of(result)
    library = "" if backend is None or backend[0] == "none" else device_words(*backend, record.host.devices)
    device = " ".join(part for part in (library, record.host.cpu, record.host.os) if part)
    return question, [f"on {device}", *_whose(record)]


def _whose(record: RunRecord) -> list[str]:
    """Return whose code it was where it was not the host's, the host's labels, and what else was measured or known."""
    code, parts = record.code, []
    if code is not None and code.origin == "request":
        signer = "signed" if record.signer is not None else "unsigned"
        parts.append(f"{code.trust_class} code of {record.principal}, {signer}")
    parts += [f"host labels {', '.join(record.labels)}"] if record.labels else []
    return [*parts, *([] if record.attempt is None else _beside(record.attempt))]


def _beside(attempt: Attempt) -> Iterator[str]:
    """Yield what a run was begun to confirm, what else it could have been chosen from, and since when that is known.

    Out of how many numbers its interval is the best one's stands in the claim itself.
    """
    if attempt.confirms is not None:
        yield f"to confirm run {attempt.confirms}"
    versions = [f"{attempt.versions} versions of it"] if attempt.versions > 1 else []
    questions = [f"{attempt.others} other question{'' if attempt.others == 1 else 's'}"] if attempt.others else []
    if versions or questions:
        yield f"this host measured {' and '.join(versions + questions)} within {LOOK_DAYS} days"
    if attempt.history_since is not None:
        yield f"attempts counted in full since {attempt.history_since}"


def text_of(answer: Quotation) -> str:
    """Return the answer on a claim that may not be quoted, with every reason."""
    if not answer.because:
        return str(answer)
    return f"{'not yet' if answer.word == 'measured' else 'refused'}, because {'; '.join(answer.because)}"
