"""Whether a number may be quoted, in the three words that a reader needs: the one answer of every command and page.

A verdict has four classes and a claim three, because of what they rest on; a reader asks one thing. Knows verdicts and
claims, and no screen.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from bridge.records.verdict import ClaimDecision, ClaimResult, Decision, Verdict

QuotationWord = Literal["quotable", "measured", "refused"]
_RUN_WORDS: Final[Mapping[Decision, QuotationWord]] = MappingProxyType(
    {"evidence": "quotable", "valid": "measured", "recorded": "measured", "rejected": "refused"}
)
_CLAIM_WORDS: Final[Mapping[ClaimDecision, QuotationWord]] = MappingProxyType(
    {"evidence": "quotable", "valid": "measured", "nothing": "measured"}
)
_RULE: Final = re.compile(r"(?P<premise>[a-z]+): (?:(?P<code>G[0-9](?:-[A-Z0-9]+)+): )?(?P<message>.*)", re.DOTALL)


@dataclass(frozen=True)
class Quotation:
    """The answer, with its reasons.

    Attributes:
        word: ``quotable``; ``measured``: not yet; ``refused``: it contradicts itself, or is not what was signed.
        because: what stands against it, each reason as `MESSAGE (CODE)`; empty where it may be quoted.
    """

    word: QuotationWord
    because: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the answer in one line: its first reason, and how many more there are."""
        if self.word == "quotable":
            return "may be quoted"
        first = "not yet" if self.word == "measured" else "refused"
        more = f", and {len(self.because) - 1} more" if len(self.because) > 1 else ""
        return f"{first}, because {self.because[0]}{more}" if self.because else first

    @property
    def sentence(self) -> str:
        """The answer as a sentence of its own."""
        return f"{str(self)[0].upper()}{str(self)[1:]}."


def of_verdict(verdict: Verdict, refused: str | None = None) -> Quotation:
    """Return whether the primary claim of a run may be quoted.

    Args:
        verdict: of the gate here.
        refused: why a reader treats the result as absent, whatever its verdict says; None where he does not.
    """
    if refused is not None:
        return Quotation("refused", (refused,))
    return _answer(_RUN_WORDS[verdict.decision], verdict.why)


def of_claim(claim: ClaimResult, verdict: Verdict, refused: str | None = None) -> Quotation:
    """Return whether one claim of a run may be quoted.

    Args:
        claim: of the verdict.
        verdict: of the gate here; one that refuses the run refuses every claim of it.
        refused: as in `of_verdict`.
    """
    run = of_verdict(verdict, refused)
    if run.word == "refused":
        return run
    return _answer(_CLAIM_WORDS[claim.decision], claim.why)


def word_of(decision: Decision) -> QuotationWord:
    """Return the word for a class that was stored."""
    return _RUN_WORDS[decision]


def reason_text(reason: str) -> str:
    """Return a reason as people read it: what was found, then the check that found it, or the premise it takes."""
    parts = _RULE.fullmatch(reason)
    if parts is None:
        return reason
    return f"{parts['message']} ({parts['code'] or parts['premise']})"


def _answer(word: QuotationWord, why: Sequence[str]) -> Quotation:
    return Quotation(word, () if word == "quotable" else tuple(dict.fromkeys(map(reason_text, why))))
