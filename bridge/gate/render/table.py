"""A verdict on a terminal: one aligned line per fact, the ones that stop a number marked at their end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bridge.durations import measured_text
from bridge.ids import short
from bridge.records.quotation import of_claim, of_verdict
from bridge.records.run import RunRecord
from bridge.records.verdict import ClaimResult, Finding, Verdict

NAME_COLUMNS: Final = 12
MOST_FINDINGS: Final = 8
NAMES: Final = {
    "decode_speedup": "speed",
    "prefill_speedup": "prefill",
    "total_speedup": "end to end",
    "acceptance_length": "acceptance",
    "acceptance_rate": "accepted",
    "identical_prompts": "identity",
    "kv_bytes": "memory",
    "baseline_tokens_per_s": "baseline",
    "recall_preserved": "preserved",
}


def table(verdict: Verdict, record: RunRecord | None) -> str:
    """Return the lines of a verdict; what a report said is shown without control characters."""
    return "\n".join(_row(name, text) for name, text in rows(verdict, record))


def claim_line(claim: ClaimResult, verdict: Verdict, shared: tuple[str, ...] = ()) -> str:
    """Return one claim as it stands in the table, without its name.

    Args:
        claim: of the verdict.
        verdict: its answer stands in the table already.
        shared: reasons that stand with that answer, and are every claim's.
    """
    text = str(claim.detail.get("summary") or claim.wording)
    answer = of_claim(claim, verdict)
    if answer.word != "measured":
        return text if answer.word == "refused" else f"{text}   {answer}"
    own = tuple(reason for reason in answer.because if reason not in shared)
    return f"{text}   {replace(answer, because=own) if own else 'not yet'}"


def shared_reasons(verdict: Verdict) -> tuple[str, ...]:
    """Return the reasons that every claim has that may not be quoted, in order."""
    reasons = [of_claim(claim, verdict).because for claim in verdict.claims if not claim.citable]
    return tuple(reason for reason in (reasons[0] if reasons else ()) if all(reason in other for other in reasons))


def slowdown(claims: tuple[ClaimResult, ...]) -> str | None:
    """Return where the time of a slower candidate goes, from the recomputed claims; None when it is not slower.

    A step that costs as many native tokens as it commits breaks even.
    """
    values = {claim.id: claim.value for claim in claims}
    speed, committed = values.get("decode_speedup"), values.get("acceptance_length")
    if speed is None or committed is None or not 0 < speed < 1:
        return None
    return f"slower, because a step costs {committed / speed:.2f} native tokens here and commits {committed:.2f}"


def rows(verdict: Verdict, record: RunRecord | None) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line, for whoever aligns them differently; the text is not cleaned yet."""
    yield "rejected" if verdict.decision == "rejected" else "passed", "   ".join(_first(verdict, record))
    shared = shared_reasons(verdict)
    if (first := _first_answer(verdict)) is not None:
        yield "quote", first
    for claim in verdict.claims:
        if not _told_elsewhere(claim, verdict):
            yield NAMES.get(claim.id, claim.id.replace("_", " ")), claim_line(claim, verdict, shared)
    reason = slowdown(verdict.claims)
    if reason is not None:
        yield "reason", reason
    shown = [finding for finding in verdict.findings if finding.severity != "note"]
    yield from _findings([finding for finding in shown if f"{finding.message} ({finding.code})" not in _told(verdict)])
    if verdict.decision == "rejected" and shown and (record is None or record.program_exit == 0):
        yield "remedy", shown[0].remedy


def _told_elsewhere(claim: ClaimResult, verdict: Verdict) -> bool:
    """Return whether another claim's line holds this one too, and says the same of quoting it."""
    others = [other for other in verdict.claims if other.id == claim.detail.get("told_with")]
    return any(of_claim(other, verdict) == of_claim(claim, verdict) for other in others)


def _first_answer(verdict: Verdict) -> str | None:
    """Return whether a run may be quoted, with every reason that all of its claims share; None where it may."""
    answer, shared = of_verdict(verdict), shared_reasons(verdict)
    if answer.word == "quotable" or not (answer.because or shared):
        return None
    return f"not yet, because {'; '.join(shared)}" if answer.word == "measured" and shared else str(answer)


def _told(verdict: Verdict) -> frozenset[str]:
    """Return the reasons that stand in the lines of a verdict already, whole."""
    shared = shared_reasons(verdict)
    if of_verdict(verdict).word == "refused":
        return frozenset()  # where each of them was found stands beside them only
    reasons = [*shared, *of_verdict(verdict).because[:1]]
    for claim in verdict.claims:
        if (answer := of_claim(claim, verdict)).word == "measured":
            reasons += [reason for reason in answer.because if reason not in shared][:1]
    return frozenset(reasons)


def _findings(shown: list[Finding]) -> Iterator[tuple[str, str]]:
    """Yield a line for each thing that was found, wherever it was: of six repeats with one fault it is said once."""
    places: dict[tuple[str, str], list[str]] = {}
    for finding in shown:
        place = " ".join(part for part in (finding.report or "", finding.where) if part)
        said = (finding.premise or "reject", f"{finding.code}  {finding.message}")
        places.setdefault(said, []).append(place)
    for (premise, text), where in list(places.items())[:MOST_FINDINGS]:
        more = f" and {len(where) - 1} more" if len(where) > 1 else ""
        yield premise, f"{text}  ({where[0]}{more})" if where[0] else text
    if len(places) > MOST_FINDINGS:
        yield "", f"and {len(places) - MOST_FINDINGS} more findings in verdict.json"


def _first(verdict: Verdict, record: RunRecord | None) -> Iterator[str]:
    yield f"{of_verdict(verdict).word} ({verdict.profile})"
    if record is not None:
        yield short(verdict.id)
        yield measured_text(record.wall_s)
        yield f"{record.host.os} {record.host.machine}"


def _row(name: str, text: str) -> str:
    clean = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return f"{name.ljust(NAME_COLUMNS - 1)} {clean}".rstrip()
