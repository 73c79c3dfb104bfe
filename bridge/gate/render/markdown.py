"""A verdict as markdown: the first sentence says what may be quoted, or what stopped it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.records.quotation import of_claim
from bridge.records.verdict import Verdict

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|<>~&$-])")
_AUTOLINK = re.compile(r"(www)\.", re.IGNORECASE)  # GitHub links these without a scheme


def markdown(verdict: Verdict) -> str:
    """Return the verdict as markdown; nothing in it can become a link, an image, HTML or a mention."""
    return "\n".join(_lines(verdict)) + "\n"


def escape(text: str) -> str:
    """Return text that markdown shows as it is, on one line; what cannot be printed is a space."""
    flat = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    flat = _AUTOLINK.sub("\\1\u200b.", flat)
    return _SPECIAL.sub(r"\\\1", flat).replace("@", "@\u200b").replace("://", ":\u200b//")


def _lines(verdict: Verdict) -> Iterator[str]:
    yield escape(verdict.headline)
    yield ""
    if verdict.claims:
        yield "| claim | what the raw rows give | n | quote |"
        yield "|---|---|---|---|"
        for claim in verdict.claims:
            answer = escape(str(of_claim(claim, verdict)))
            yield f"| {escape(claim.id)} | {escape(claim.wording)} | {claim.n} | {answer} |"
        yield ""
    if verdict.findings:
        yield "| rule | premise | consequence | where | what was found | what to do |"
        yield "|---|---|---|---|---|---|"
        for finding in verdict.findings:
            where = " ".join(part for part in (finding.report or "", finding.where) if part)
            cells = (finding.code, finding.premise or "-", finding.severity, where, finding.message, finding.remedy)
            yield f"| {' | '.join(escape(cell) for cell in cells)} |"
        yield ""
    ran, idle = verdict.rules_run, len(verdict.rules_skipped)
    yield f"Profile {escape(verdict.profile)}; {ran} rules looked, {idle} had nothing to look at."
    yield f"Gate {escape(verdict.gate.version)}, digest `{verdict.gate.digest[:12]}`."
