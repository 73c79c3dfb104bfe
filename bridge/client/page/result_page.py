"""The page of one result: the verdict first, then what it rests on, what was measured, when, on what, and the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from bridge.client.document.untrusted import commands_terminals, tail
from bridge.client.evidence.history import HistoryRow, by_number
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.reports import decode_rates, is_number, metrics_of, rows, value_text
from bridge.client.page import plots
from bridge.client.page.markup import LISTED, last_fitting, left_out, lines, marked, page, section, table, text
from bridge.client.page.pictures import kept_files
from bridge.client.run.cause import telling_line
from bridge.client.run.result import Result, ending
from bridge.diagnostics import Check
from bridge.durations import duration_text
from bridge.ids import short
from bridge.records.derived import DerivedReport
from bridge.records.network import describe_use
from bridge.records.quotation import of_claim, of_verdict
from bridge.records.run import RunRecord
from bridge.records.verdict import ClaimResult, Verdict
from bridge.run.asked import asked_text
from bridge.system.clock import parse_rfc3339

LOG_LINES: Final = 200
_END_LINES: Final = 20
_LOG_BYTES: Final = 150_000  # a line of a log takes up to 12 kB of a page
_LOG_FIRST: Final = frozenset({"program_failed", "timed_out"})
"""Endings that the log explains and the gate does not."""
_ENDED_BY_ITSELF: Final = frozenset({"passed", "gate_rejected"})
"""Endings of which the verdict says all."""


def page_of(judged: JudgedResult, checks: Sequence[Check], earlier: Sequence[HistoryRow]) -> str:
    """Return the page of an intact result.

    Args:
        judged: the result, and what the gate here says of it.
        checks: what `verify` found.
        earlier: the history of its primary claim, oldest first.
    """
    result, verdict = judged.result, judged.verdict
    record = result.record
    parts = [_head(result, verdict)]
    if record is not None and record.reason in _LOG_FIRST:
        parts.append(section("End of the log", _log(result, _END_LINES)))
    if verdict is not None:
        parts += [section("Claims", *_claims(verdict)), section("Findings", _findings(verdict))]
    parts.append(section("Files", *kept_files(result.kept)))
    parts.append(section("Signature and integrity", _checks(checks)))
    own = metrics_of(result.reports)
    parts.append(section("Reports of the program", *_own_reports(own, sorted(result.reports))))
    parts += [
        section(f"Report {name}", *_report(value, result.derived.report(name)))
        for name, value in sorted(result.reports.items() if not own else ())
    ]
    parts.append(section("History of the primary claim", *_history(earlier)))
    if record is not None:
        parts += [section("Time line", *_times(record)), section("Provenance", _provenance(record))]
    parts.append(section("Log, written by the program of the run", _log(result, LOG_LINES)))
    return page(f"Kakeya run {short(result.id)}", parts)


def page_of_refused(name: str, why: str, checks: Sequence[Check]) -> str:
    """Return the page of something that is no intact result: what does not hold, and nothing that it says."""
    head = f'<h1>{text(name)}</h1><p class="verdict rejected">does not verify</p><p>{text(why)}</p>'
    return page(f"{name} does not verify", [head, section("Signature and integrity", _checks(checks))])


def _head(result: Result, verdict: Verdict | None) -> str:
    """Return the title, how it ended, and why: of a failure the cause comes first, then what the gate says."""
    record = result.record
    reason = ending(None, result, verdict)
    decision = "not judged" if verdict is None else f"{of_verdict(verdict).word} ({verdict.profile})"
    kind = "recorded" if verdict is None else verdict.decision
    ended = decision if reason in _ENDED_BY_ITSELF else f"{reason}, {decision}"
    cause = telling_line(reason, result.log)
    sentences = [None if cause is None else f"In its log: {cause}"]
    sentences += [None if record is None else record.message, None if verdict is None else verdict.headline]
    question = "" if record is None else record.preset if result.request is None else asked_text(result.request)
    preset = f" {text(question)}" if question else ""
    title = f'<h1>Run {text(short(result.id))}{preset}</h1><p class="verdict {kind}">{text(ended)}</p>'
    return title + "".join(f"<p>{text(sentence)}</p>" for sentence in sentences if sentence)


def _claims(verdict: Verdict) -> Iterator[str]:
    for unit, group in _by_unit(verdict.claims).items():
        yield plots.intervals(group, unit, 1.0 if unit in {"x", "ratio"} else None)
    rows_of_claims = (
        (claim.id, claim.wording, marked(claim.decision, str(of_claim(claim, verdict))), _premises(claim))
        for claim in verdict.claims
    )
    yield table(("claim", "wording", "quote", "premises"), rows_of_claims)


def _by_unit(claims: Iterable[ClaimResult]) -> dict[str, list[tuple[str, float, tuple[float, float]]]]:
    intervals: dict[str, list[tuple[str, float, tuple[float, float]]]] = {}
    for claim in claims:
        if claim.value is not None and claim.interval is not None:
            intervals.setdefault(claim.unit, []).append((claim.id, claim.value, claim.interval))
    return intervals


def _premises(claim: ClaimResult) -> Markup:
    words = ((premise.premise, "held" if premise.held else "missing") for premise in claim.premises)
    return Markup(" · ").join(marked(word, f"{name}{'' if word == 'held' else ' missing'}") for name, word in words)


def _findings(verdict: Verdict) -> str:
    cells = ((finding.code, finding.severity, finding.message, finding.remedy) for finding in verdict.findings)
    return table(("rule", "severity", "what", "what to do"), cells)


def _checks(checks: Sequence[Check]) -> str:
    words = {"ok": "held", "warn": "recorded", "fail": "missing"}
    return table((), ((marked(words[check.level], check.level), check.name, check.text) for check in checks))


def _own_reports(metrics: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Iterator[str]:
    """Yield the numbers of an owner's own program, a dot and a row a report."""
    for metric, values in metrics.items():
        numbers = [(float(at), float(value)) for at, value in enumerate(values, start=1) if is_number(value)]
        yield plots.dots({metric: numbers}, "report", metric) if len(numbers) > 1 else ""
    rows_of_reports = list(zip(names, *(map(value_text, values) for values in metrics.values()), strict=True))
    yield table(("report", *metrics), rows_of_reports[:LISTED] if metrics else ())
    yield left_out(rows_of_reports, "more reports")


def _report(report: Mapping[str, Any], derived: DerivedReport | None) -> Iterator[str]:
    rates = decode_rates(report)
    yield plots.dots(
        {name: [(float(at), rate) for at, (_, rate) in enumerate(points, start=1)] for name, points in rates.items()},
        "sample, in order of measurement", "decode tokens/s",
    )  # fmt: skip
    shown = list(rows(report, derived))
    yield table((), shown[:LISTED])
    yield left_out(shown, "more lines in the report")


def _history(earlier: Sequence[HistoryRow]) -> Iterator[str]:
    for (metric, unit), group in by_number(earlier).items():
        if len(group) > 1:
            points = [(float(at), row.value or 0.0) for at, row in enumerate(group, start=1)]
            yield plots.dots({metric: points}, "run, oldest first", plots.labelled(metric, unit))
    shown = earlier[-LISTED:]
    cells = ((row.ended, short(row.id), row.metric, row.text) for row in shown)
    yield table(("ended", "run", "claim", "value"), cells)
    yield left_out(earlier, "earlier runs are not listed")


def _times(record: RunRecord) -> Iterator[str]:
    # Each machine has a clock of its own, and only the runner's is read twice.
    lasted = "" if record.started is None else duration_text(_seconds(record.started, record.ended))
    states = [("asked for", record.created, "requester", ""), ("claimed", record.claimed, "host", "")]
    states += [] if record.started is None else [("started", record.started, "host", "")]
    states += [("ended", record.ended, "host", lasted)]
    yield table(("state", "at", "clock", "after its start"), states)
    if record.telemetry is not None:
        samples = record.telemetry.samples
        shares = {
            "this run": [(sample.t_s, sample.cpu_share) for sample in samples if sample.cpu_share is not None],
            "others": [
                (sample.t_s, sample.other_cpu_share) for sample in samples if sample.other_cpu_share is not None
            ],
        }
        yield plots.over_time(shares, "share of the processors")
    cells = (
        (command.name, f"{command.started_s:.1f}", f"{command.ended_s:.1f}", command.exit_code,
         f"{command.cpu_s:.1f}", f"{command.peak_rss_bytes / 1e6:.0f} MB")
        for command in record.commands
    )  # fmt: skip
    yield table(("command", "from s", "to s", "exit", "CPU s", "peak memory"), cells)


def _seconds(begin: str, end: str) -> float:
    return (parse_rfc3339(end) - parse_rfc3339(begin)).total_seconds()


def _provenance(record: RunRecord) -> str:
    host, code = record.host, record.code
    facts: list[tuple[str, object]] = [
        ("run", record.id), ("bus", record.bus_id), ("runner", f"{record.runner} {record.runner_version}"),
        ("host", f"{host.name}, {host.os} {host.os_version}, {host.cpu}, {host.cpu_count} processors"),
        ("devices", ", ".join(host.devices) or "none"),
        ("sandbox", "; ".join(filter(None, (record.sandbox.kind, record.sandbox.not_held)))),
        ("network", describe_use(record.sandbox.network, record.sandbox.use)),
        ("preset", f"{record.preset} {record.preset_digest}"), ("policy", record.policy_digest),
        ("request", record.request_digest),
        ("asked by", f"{record.principal}, signed" if record.signer else record.principal),
    ]  # fmt: skip
    if code is not None:
        facts += [("code", f"{code.origin}, {code.trust_class}, {code.identity}"), ("packages", code.lock_digest)]
    facts += [("model", f"{model.name}, {model.bytes} bytes") for model in record.models]
    facts += [("output", f"{output.path}, {output.bytes} bytes, {output.sha256}") for output in record.outputs]
    return table((), facts)


def _log(result: Result, most_lines: int) -> str:
    last = tail(result.log, most_lines)
    shown = last_fitting(last.lines, _LOG_BYTES)
    earlier = last.earlier_lines + len(last.lines) - len(shown)
    left = f"<p>{earlier} earlier lines are in log.txt.</p>" if earlier else ""
    if commands_terminals(result.log):
        command = f"kakeya-mac logs {short(result.id)}"
        left += f"<p>log.txt holds control characters for terminals; {text(command)} prints it without them.</p>"
    return left + lines(shown) if last.lines else ""
