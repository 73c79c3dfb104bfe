"""A set of sittings as a reader has it: each result judged here, and what all of them say together."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from bridge.client.document.quoting import QuoteData, RefusedRow, SittingRow, StandingEnd, StandingRow
from bridge.client.document.untrusted import clean_line
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.quote import asked_and_where, pasteable, text_of
from bridge.errors import UsageError
from bridge.gate.standing import JudgedSitting, StandingClaim, standing_claims
from bridge.launches.attempts import ShownInterval
from bridge.launches.standing import APART_LEAST_S
from bridge.records.quotation import Quotation
from bridge.trust.judgement import UNCHECKED


@dataclass(frozen=True)
class StandingSet:
    """The sittings of one set, in the order they began, and the claims that they make together."""

    sittings: tuple[JudgedResult, ...]
    claims: tuple[StandingClaim, ...]

    @classmethod
    def of(cls, results: Sequence[JudgedResult], apart_s: float = APART_LEAST_S) -> StandingSet:
        """Return the set that results are the sittings of.

        Args:
            results: judged here, in any order.
            apart_s: how far apart they had to begin; another value is for a study, whose numbers nobody quotes.

        Raises:
            UsageError: one of them is no sitting, or was never judged.
        """
        sittings = [(_as_sitting(judged), judged) for judged in results]
        ordered = tuple(judged for _, judged in sorted(sittings, key=lambda pair: pair[0].began_s))
        return cls(ordered, standing_claims([sitting for sitting, _ in sittings], apart_s))

    @property
    def primary(self) -> StandingClaim | None:
        """The claim that its preset fixed beforehand; None where the sittings have no ratio of it."""
        spec = self.sittings[-1].result.spec
        primary_id = None if spec is None else spec.primary_claim
        return next((claim for claim in self.claims if claim.id == primary_id), None)

    @property
    def run_ids(self) -> list[str]:
        """The runs of the set."""
        return [judged.result.id for judged in self.sittings]

    def data(self) -> list[StandingRow]:
        """Return its claims as `--json` shows them."""
        return [_shown(claim) for claim in self.claims]


def is_sitting(judged: JudgedResult) -> bool:
    """Return whether a result is one sitting of a standing claim."""
    return judged.result.spec is not None and judged.result.spec.sitting is not None


def quotation_of(claim: StandingClaim) -> Quotation:
    """Return whether a standing claim may be quoted."""
    return Quotation("measured" if claim.why else "quotable", claim.why)


def quote_set(standing: StandingSet, *, markdown: bool = False) -> QuoteData:
    """Return the quote of a standing claim: a sentence each, and the command that checks all of its sittings.

    Raises:
        UsageError: the sittings have no ratio at all.
    """
    if not standing.claims:
        raise UsageError(
            "the sittings claim no ratio, so there is nothing to quote",
            remedy=f"kakeya-mac report {standing.run_ids[-1]}",
        )
    answers = [(claim, quotation_of(claim)) for claim in standing.claims]
    refused = [RefusedRow(claim.id, clean_line(text_of(answer))) for claim, answer in answers if claim.why]
    quotable = [claim for claim, answer in answers if answer.word == "quotable"]
    if not quotable:
        return QuoteData("measured", [], refused, standing.data())
    command = shlex.join(["kakeya-mac", "verify", *standing.run_ids])
    lines = pasteable([_sentence(claim, standing) for claim in quotable], command, markdown=markdown)
    return QuoteData("quotable", lines, refused, standing.data())


def _sentence(claim: StandingClaim, standing: StandingSet) -> str:
    last = standing.sittings[-1]
    if last.result.record is None:
        raise ValueError("a judged sitting has a record")
    answer = last.answer or UNCHECKED
    question, where = asked_and_where(last.result, last.result.record)
    runs = f"runs {', '.join(standing.run_ids)}"
    return clean_line("; ".join([f"{question}: {claim.wording}", *where, answer.text, runs]))


def _as_sitting(judged: JudgedResult) -> JudgedSitting:
    """Return a result as the gate takes it.

    Raises:
        UsageError: it is no sitting, or was never judged.
    """
    result, verdict = judged.result, judged.verdict
    if not is_sitting(judged) or result.spec is None or result.record is None or verdict is None:
        raise UsageError(
            f"run {result.id} is no sitting of a standing claim; several results are quoted together only where each is"
        )
    answer = judged.answer
    refused = answer.text if answer is not None and answer.refused else None
    files = result.tree.files
    reports = {name.removeprefix("reports/"): data for name, data in files.items() if name.startswith("reports/")}
    return JudgedSitting(verdict, result.record, result.spec, reports, refused)


def _shown(claim: StandingClaim) -> StandingRow:
    ratio, looks = claim.ratio, claim.looks
    sittings = [
        SittingRow(run_id, sitting.number, sitting.log_ratio, sitting.load)
        for run_id, sitting in zip(claim.run_ids, claim.sittings, strict=True)
    ]
    ends = [
        StandingEnd(end.load, end.value, end.interval(looks), _bounds(end.next_sitting(looks)))
        for end in (() if ratio is None else ratio.ends)
    ]
    span_s = None if ratio is None else ratio.span_s
    word = quotation_of(claim).word
    return StandingRow(claim.id, word, claim.wording, claim.why, looks, span_s, ends, sittings)


def _bounds(shown: ShownInterval) -> tuple[float, float]:
    return shown.low, shown.high
