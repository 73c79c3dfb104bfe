"""Whether this reader may quote a run or a claim of it: by what the gate here says, and by whose word it is."""

from __future__ import annotations

from bridge.records.quotation import Quotation, of_claim, of_verdict
from bridge.records.verdict import ClaimResult, Verdict
from bridge.trust.judgement import TrustAnswer


def quotation(verdict: Verdict, answer: TrustAnswer | None, claim: ClaimResult | None = None) -> Quotation:
    """Return whether a run or one claim of it may be quoted by this reader: the one answer of every command.

    Args:
        verdict: of the gate here.
        answer: whether its runner may say what it says; None where that was not asked.
        claim: of the verdict; None for the run as a whole.
    """
    refused = answer.text if answer is not None and answer.refused else None
    return of_verdict(verdict, refused) if claim is None else of_claim(claim, verdict, refused)
