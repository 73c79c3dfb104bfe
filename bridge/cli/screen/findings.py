"""Print what a doctor finds, each as it comes, like findings once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.cli.screen.answer import Answer
from bridge.cli.screen.output import DATA_LABEL_CHARS, Output
from bridge.client.document.untrusted import clean_line
from bridge.diagnostics import Check, grouped, has_failed, wrapped


def print_findings(output: Output, findings: Iterable[Check]) -> list[Check]:
    """Print findings with their remedies and return all of them."""
    checks: list[Check] = []

    def noted() -> Iterator[Check]:
        for finding in findings:
            checks.append(finding)
            yield finding

    for finding in grouped(noted()):
        texts = [f"{finding.name}: {clean_line(finding.text)}"]
        texts += [] if finding.remedy is None else [f"remedy: {clean_line(finding.remedy)}"]
        for number, line in enumerate(part for text in texts for part in wrapped(text, DATA_LABEL_CHARS)):
            output.row(finding.level if number == 0 else "", line)
    return checks


def answer_checks(output: Output, checks: Iterable[Check]) -> Answer:
    """Print what was checked and return it; the answer ends in 1 where something stands in the way."""
    printed = print_findings(output, checks)
    return Answer([vars(check) for check in printed], exit_code=1 if has_failed(printed) else 0)
