"""`gate check`, `gate rules`, `gate explain`: the gate, used by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.cli.mac.context import Invocation
from bridge.cli.mac.results import find_result, first_row, keys_for
from bridge.cli.screen.answer import Answer, Fitted, Line, Row, Talk
from bridge.client.clone.store import id_in
from bridge.client.connection.pins import Pins
from bridge.client.document.untrusted import clean_line, clean_text, markdown_text
from bridge.client.evidence.gate_files import Judged, NoReport, judge_paths
from bridge.errors import UsageError
from bridge.records.quotation import of_verdict
from bridge.records.verdict import ClaimResult, Verdict
from bridge.run.requirement import Requirement, satisfied

if TYPE_CHECKING:
    from bridge.cli.table.command import Options
    from bridge.cli.table.options import GateCheckOptions, GateExplainOptions, JsonOptions


_COLUMNS: Final = re.compile(r"- | *\S+ {2,}| *")  # of a line: a bullet, a name with a gap behind it, or an indent


def check(call: Invocation[GateCheckOptions]) -> Answer:
    """Judge files and folders; exit 1 when one is below what is required or does not verify."""
    required = call.required()
    option = tuple(call.options.runner_key or ())

    def trusted(folder: Path) -> Pins:
        return keys_for(call, id_in(folder), option)

    entries = list(judge_paths([Path(call.directory, path) for path in call.options.paths], trusted))
    judged = [entry for entry in entries if isinstance(entry, Judged)]
    others = [entry for entry in entries if isinstance(entry, NoReport)]
    against = [_against(side, required) for side in judged]
    failed = sum(
        bool(reasons) or side.verdict.decision == "rejected" for side, reasons in zip(judged, against, strict=True)
    )
    code = 1 if failed else 0
    lines = [
        line for side, stands in zip(judged, against, strict=True) for line in _lines(call.options.format, side, stands)
    ]
    lines += _suites(judged, against) if call.options.format == "junit" else ()
    lines += [Talk("skip", f" {other.path}: {other.reason}") for other in others]
    unjudged = f", {len(others)} not judged" if others else ""
    below = f"below {required}" if required else "rejected"
    lines.append(Talk("gate", f"{len(judged)} judged, {failed} {below}{unjudged}"))
    data = [
        {"path": str(side.path), "problems": list(side.problems), "verdict": side.verdict.model_dump(mode="json")}
        for side in judged
    ]
    return Answer(data, lines, code, reason="gate_rejected" if code else "passed")


def _against(side: Judged, required: Requirement | None) -> list[str]:
    """Return what stands against a result beside its verdict: its files, its signature, what was required of it."""
    below = side.verdict.decision != "rejected" and not satisfied(side.verdict, required)
    return [
        clean_line(f"{side.path}: {problem}") for problem in (*side.problems, *([f"below {required}"] if below else []))
    ]


def _suites(judged: list[Judged], against: list[list[str]]) -> Iterator[str]:
    """Yield one JUnit document; what stands against a result beside its verdict is a suite of its own."""
    from html import escape

    from bridge.gate import render

    yield '<?xml version="1.0" encoding="utf-8"?>'
    yield "<testsuites>"
    for side, reasons in zip(judged, against, strict=True):
        yield from render.junit(side.verdict).rstrip().split("\n")[1:]
        if reasons:
            count = len(reasons)
            yield f'<testsuite name="kakeya-result" tests="{count}" failures="{count}" errors="0" skipped="0">'
            for text in map(escape, reasons):
                yield f'<testcase classname="result" name="{text}"><failure message="{text}"/></testcase>'
            yield "</testsuite>"
    yield "</testsuites>"


def rules(_call: Invocation[JsonOptions]) -> Answer:
    """List the rules of the gate with their messages."""
    from bridge.gate.catalogue import rules_catalogue

    entries = rules_catalogue()
    lines = [
        Fitted(f"{entry.code:<24} {entry.premise:<9} {entry.severity:<10} {entry.message}", 4) for entry in entries
    ]
    return Answer([entry.described() for entry in entries], lines)


def explain(call: Invocation[GateExplainOptions]) -> Answer:
    """Say what a printed word means: a check, a premise, a claim, a word of a line; of a run also what it comes to."""
    from bridge.gate.catalogue import explain as meaning
    from bridge.gate.catalogue import printed_words

    what = call.options.what
    judged, first = (None, None) if what is None or call.options.of is None else _judged(call, call.options.of)
    claims = [] if judged is None else [claim for claim in judged.claims if claim.id == what]
    if what is None:
        text = f"Words: {', '.join(printed_words())}. Codes of checks: kakeya-mac gate rules."
    elif claims:
        text = "\n".join(line for claim in claims for line in _graph(claim))
    elif judged is not None:
        text = "\n".join([meaning(what), *_fell(what, judged)])
    else:
        text = meaning(what)
    lines: list[Line] = [] if first is None else [first]
    lines += [_fitted(line if judged is None else clean_line(line)) for line in text.rstrip("\n").split("\n")]
    data = {
        "what": what,
        "text": text,
        "run": None if judged is None else judged.id,
        "claims": [claim.model_dump(mode="json") for claim in claims],
    }

    def document(command: str) -> dict[str, Any]:
        from bridge.client.document.envelope import of_data

        envelope = of_data(command, data)
        envelope["data"]["text"] = clean_text(text)  # a page of lines, not one
        return envelope

    return Answer(lines=lines, document=document)


def _fell(what: str, judged: Verdict) -> Iterator[str]:
    """Yield what a premise, a check or an answer comes to in a run: which claims lack it, why, and what to do."""
    named = [finding for finding in judged.findings if what.upper() == finding.code or what.lower() == finding.premise]
    for claim in judged.claims:
        for premise in claim.premises:
            if premise.premise == what.lower():
                state = "held" if premise.held else f"missing, because {'; '.join(premise.why)}"
                yield f"{claim.id}: {state}"
    if not any(claim.premises for claim in judged.claims) or what.upper().startswith("G"):
        yield from (f"in this run: {finding.message}" for finding in named)
    for remedy in dict.fromkeys(finding.remedy for finding in named if finding.severity != "note"):
        yield f"to mend it: {remedy}"
    if not named and not any(what.lower() == premise.premise for claim in judged.claims for premise in claim.premises):
        yield f"in this run: {of_verdict(judged)}"


def _judged(call: Invocation[Options], where: str) -> tuple[Verdict, Row]:
    """Return what the gate here says of a run, or of a result in a folder, and the row of whose it is."""
    _, judged = find_result(call, where)
    if judged.verdict is None:
        raise UsageError(f"run {judged.result.id} was not judged", remedy=f"kakeya-mac status {judged.result.id}")
    return judged.verdict, first_row(judged.result.id, judged.verdict, judged.answer)


def _graph(claim: ClaimResult) -> Iterator[str]:
    """Yield the claim, then its premises: held or not, what they mean, seen by whom, fallen why."""
    from bridge.gate.declared.premises import PREMISES

    yield f"{claim.id} ({claim.kind})   {claim.wording}"
    for premise in claim.premises:
        checks = (
            f"{len(premise.rules)} check{'' if len(premise.rules) == 1 else 's'}"
            if premise.rules
            else "no check looked"
        )
        means = PREMISES[premise.premise].holds_when
        word = "held" if premise.held else "MISSING"
        yield f"{word:<8}{premise.premise:<9} {means}; seen by {premise.seen_by} ({checks})"
        yield from (f"{'':<8}{reason}" for reason in premise.why)


def _fitted(line: str) -> Fitted:
    """Return a line, of which what does not fit the screen goes below the last of its columns."""
    columns = _COLUMNS.match(line)
    return Fitted(line, columns.end() if columns else 0)


def _lines(form: str, judged: Judged, against: list[str]) -> Iterator[Line]:
    """Yield a verdict in the form that was asked for; JUnit's is one document of all of them."""
    from bridge.gate import render

    verdict = judged.verdict
    match form:
        case "markdown":
            text = "".join(f"**{markdown_text(reason)}**\n\n" for reason in against) + render.markdown(verdict)
        case "junit":
            text = ""  # all verdicts are one document
        case "annotations":
            errors = (f"::error title=evidence gate::{reason.replace('%', '%25')}\n" for reason in against)
            text = "".join(errors) + render.annotations(verdict)
        case _:
            text = render.table(verdict, judged.record)
            if judged.answer is not None:
                yield first_row(verdict.id, verdict, judged.answer)
            yield Row("path", str(judged.path))
    yield from (Talk("error", f" {judged.path}: {clean_line(problem)}") for problem in judged.problems)
    for line in text.splitlines():
        yield _fitted(line) if form == "table" else line  # a page and a program wrap by themselves
    if judged.otherwise is not None:
        yield Talk("note", f"{judged.path}: {clean_line(judged.otherwise)}")
