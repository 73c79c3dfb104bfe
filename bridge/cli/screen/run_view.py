"""The text of one run on stdout: the table of the design's target look.

Every text in it that came from elsewhere is cleaned here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.cli.screen.answer import Row
from bridge.cli.screen.output import DATA_LABEL_CHARS
from bridge.client.document.untrusted import PREFIX, clean_line, tail
from bridge.client.run.cause import RAN_WELL, telling_line
from bridge.client.run.facts import next_steps, place_of, times_of
from bridge.client.run.limit import raise_limit
from bridge.client.run.progress import progress_text
from bridge.durations import duration_text
from bridge.ids import short
from bridge.request import UNSIGNED
from bridge.run.asked import asked_text
from bridge.run.outcomes import OUTCOMES

if TYPE_CHECKING:
    from bridge.client.run.run import Run
    from bridge.client.run.status import RunStatus

_FAILED_LOG_LINES = 12
_KEPT_MOST = 8
BUBBLEWRAP = "sudo apt-get install bubblewrap (Debian, Ubuntu), or the package of that name of another system"
_LABEL_MOST_CHARS = 24
_HOST_SAYS_WHAT_NEXT = frozenset({"policy_refused", "request_rejected", "infrastructure"})


def status_rows(run: Run, status: RunStatus, directory: Path) -> list[Row]:
    """Return one run: how it ended, what was measured, where the files are, what to do next."""
    ended = status.terminal or status.reason != "pending"
    lines = [(status.reason if ended else status.state.word, headline(run, status))]
    lines += rows(run, status, directory)
    width = min(_LABEL_MOST_CHARS, max(DATA_LABEL_CHARS, *(len(label) + 1 for label, _ in lines)))
    return [Row(label, text, width) for label, text in lines]


def without_unwanted(status: RunStatus, word: str | None) -> tuple[RunStatus, list[Row]]:
    """Return the status of a run, which ends in 1 where its primary claim says a word, and the row that says so."""
    claims = () if status.verdict is None or word is None else status.verdict.claims
    claim = next((claim for claim in claims if claim.role == "primary"), None)
    if claim is None or word is None:
        return status, []
    answer = claim.detail.get("answer")
    says_yes = answer is not None and (answer["word"], answer["answer"]) == (word, "yes")
    if not (claim.detail.get("effect") == word if answer is None else says_yes):
        return status, [] if answer is None else [Row("answer", answer_text(claim.metric, answer))]
    after = "" if answer is None else f", as a look at {answer['launches']} launches answers"
    text = clean_line(f"{claim.metric} is {word} (--fail-if {word}){after}")
    rows = [Row("failed", text)]
    if status.exit_code != 0:
        return status, rows
    return replace(status, reason="unwanted", exit_code=OUTCOMES["unwanted"].exit_code, message=text), rows


def answer_text(metric: str, answer: Mapping[str, Any]) -> str:
    """Return what three looks said of a word, for people."""
    if answer["answer"] == "open":
        return clean_line(f"whether {metric} is {answer['word']} is open after {answer['launches']} launches")
    negated = "" if answer["answer"] == "yes" else "not "
    return clean_line(f"{metric} is {negated}{answer['word']}, as a look at {answer['launches']} launches answers")


def headline(run: Run, status: RunStatus) -> str:
    """Return ``measured (smoke)   01k9x3…   13s   mlx-cpu Linux x86_64``."""
    parts = [f"{_word(status)} ({status.profile})"] if status.verdict is not None else []
    parts.append(short(status.id))
    seconds = times_of(status).total
    if seconds is not None:
        parts.append(duration_text(seconds))
    place = place_of(run, status)
    backend = f"{place.backend}-{place.device}" if place.backend not in {None, "none"} else place.device
    machine = " ".join(word for word in (backend, place.os) if word)
    if machine:
        parts.append(clean_line(machine))
    elif place.runner:
        parts.append(place.runner)
    if place.sandbox == "none":
        parts.append("NO SANDBOX")
    return "   ".join(parts)


def _word(status: RunStatus) -> str:
    """Return whether a judged run may be quoted, in its word."""
    from bridge.client.run.quotation import quotation

    return "" if status.verdict is None else quotation(status.verdict, status.answer).word


def rows(run: Run, status: RunStatus, directory: Path) -> Iterator[tuple[str, str]]:
    """Yield label and text of every further line; of a failure its cause comes first: the log's line, then the gate."""
    if status.request is not None:
        yield "asked", clean_line(asked_text(status.request))
    cause = None if status.result is None else telling_line(status.reason, status.result.log)
    if cause is not None:
        yield "cause", f"{PREFIX}{cause}"
    if status.message and status.reason != "gate_rejected":  # the findings below say it line by line
        yield "message", clean_line(status.message)
        if status.remedy and (status.reason in _HOST_SAYS_WHAT_NEXT or raise_limit(status.result) == status.remedy):
            yield "remedy", clean_line(status.remedy)
    yield from _log_rows(status)
    yield from _gate_rows(status)
    if status.reason == "below_required":
        yield "required", clean_line(f"{status.required}: not met. {status.remedy or ''}".rstrip())
    if status.progress is not None:
        yield "progress", clean_line(progress_text(status.progress))
    yield from _sandbox_rows(status)
    yield from _trust_rows(status)
    if status.answer is not None and not (run.embedded and status.answer.word == "verified"):
        yield "signature", clean_line(status.answer.text)
    if status.actions is not None:
        yield "actions", status.actions.text()
    yield from _kept_rows(status)
    if status.folder is not None:
        yield "files", f"{shown_path(status.folder, directory)}/"
    if status.view is not None and status.view.delivery not in {None, "copied"} and status.terminal:
        yield "delivery", f"{status.view.delivery}: the result is under the runner's own refs, and here"
    for argv in next_steps(run, status)[:1]:
        yield "next", shlex.join(argv)


def _kept_rows(status: RunStatus) -> Iterator[tuple[str, str]]:
    """Yield the files that the program left beside its reports, each with its size."""
    kept_files = {} if status.result is None else status.result.kept
    if kept_files:
        listed = ", ".join(
            f"reports/{name} ({size_text(len(data))})" for name, data in list(kept_files.items())[:_KEPT_MOST]
        )
        more = f", and {len(kept_files) - _KEPT_MOST} more" if len(kept_files) > _KEPT_MOST else ""
        yield "kept", clean_line(listed + more)


def size_text(count: int) -> str:
    """Return a number of bytes for people."""
    return f"{count} bytes" if count < 10_000 else f"{count / 1e3:.0f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


def _sandbox_rows(status: RunStatus) -> Iterator[tuple[str, str]]:
    """Yield why a run had no sandbox, and whose rights it had instead; and where it was, if it had a network."""
    record = status.record
    if record is None or not record.commands:
        return
    if record.sandbox.kind == "none":
        yield "sandbox", clean_line(f"none: {record.sandbox.reason}; it ran as user {record.sandbox.uid}")
        if "bubblewrap" in str(record.sandbox.reason) and "not installed" in str(record.sandbox.reason):
            yield "remedy", BUBBLEWRAP
    elif record.sandbox.not_held is not None:
        yield "sandbox", clean_line(f"{record.sandbox.kind}, as user {record.sandbox.uid}; {record.sandbox.not_held}")
    elif record.sandbox.network:
        from bridge.records.network import describe_use

        yield "network", clean_line(describe_use(record.sandbox.network, record.sandbox.use))


def _trust_rows(status: RunStatus) -> Iterator[tuple[str, str]]:
    """Yield who asked, where the request was signed, and what the host's owner let pass."""
    record = status.record
    if record is None:
        return
    facts = []
    if record.principal != UNSIGNED:
        facts.append(f"{record.principal} (signed)" if record.signer is not None else record.principal)
    code = record.code
    if code is not None and code.origin == "request":
        facts.append(f"{code.trust_class} code")
    if "trust_pushers" in record.labels and "embedded" not in record.labels:
        facts.append("unsigned, on a host that trusts whoever can push (trust_pushers)")
    if facts:
        yield "trust", clean_line("; ".join(facts))


def shown_path(path: Path, directory: Path) -> str:
    """Return a path relative to the working directory where that is shorter to read."""
    try:
        return str(path.relative_to(directory))
    except ValueError:
        return str(path)


def _gate_rows(status: RunStatus) -> Iterator[tuple[str, str]]:
    """Yield the gate's own table but its first line: `headline` says more."""
    record, verdict = status.record, status.verdict
    if verdict is None:
        return
    if record is not None and not record.commands and status.reason not in RAN_WELL:
        return  # nothing ran, so that what the gate misses says nothing more
    from bridge.gate.render import rows as gate_rows
    from bridge.publish.markdown import STOPPED, unfinished

    stopped = status.reason in STOPPED and bool(verdict.findings)
    shown = verdict.evolve(findings=()) if stopped else verdict
    for name, text in list(gate_rows(shown, record))[1:]:
        yield clean_line(name), clean_line(text)
    if stopped:
        yield "gate", clean_line(unfinished(status.reason, verdict))


def _log_rows(status: RunStatus) -> Iterator[tuple[str, str]]:
    """Show the end of a failed program's log: what people look for first; `row` labels keep it inside a field."""
    if status.reason not in {"program_failed", "timed_out"} or status.result is None:
        return
    for line in tail(status.result.log, _FAILED_LOG_LINES).lines:
        yield "log", f"{PREFIX}{line}"
