"""A verdict as workflow commands, one line a finding; what a report said cannot start a command of its own.

Format: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from typing import Final

from bridge.records.verdict import Severity, Verdict

_LEVEL: Final[dict[Severity, str]] = {"reject": "error", "violation": "warning", "note": "notice"}


def annotations(verdict: Verdict) -> str:
    """Return the headline as a notice or an error, then a line per finding."""
    level = "error" if verdict.decision == "rejected" else "notice"
    lines = [f"::{level} title=evidence gate::{_data(verdict.headline)}"]
    for finding in verdict.findings:
        where = " ".join(part for part in (finding.report or "", finding.where) if part)
        text = f"{where}: {finding.message}" if where else finding.message
        lines.append(
            f"::{_LEVEL[finding.severity]} title={_property(finding.code)}::{_data(f'{text} {finding.remedy}')}"
        )
    return "\n".join(lines)


def _data(text: str) -> str:
    clean = "".join(char if char.isprintable() or char in "\r\n" else "\ufffd" for char in text)
    return clean.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
