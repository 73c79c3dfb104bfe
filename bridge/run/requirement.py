"""What a requester asks of a verdict before a command ends in 0: a premise, or evidence, of one claim.

Imports no record at run time: the help of `kakeya-mac` stays light.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bridge.errors import UsageError

if TYPE_CHECKING:
    from bridge.records.verdict import ClaimResult, Verdict

EVIDENCE: Final = "evidence"
PREMISES: Final = ("bound", "code", "inputs", "outputs", "times", "ratio", "memory", "attempts", "machine")
_CLAIM: Final = re.compile(r"[A-Za-z0-9_.-]{1,120}")


@dataclass(frozen=True)
class Requirement:
    """`what` is asked of `claim`, None for every primary one."""

    what: str
    claim: str | None = None

    def __str__(self) -> str:
        return self.what if self.claim is None else f"{self.claim}:{self.what}"

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Return what ``--require`` says.

        Raises:
            UsageError: neither ``evidence``, a premise, nor ``CLAIM:evidence``.
        """
        claim, colon, what = text.rpartition(":")
        named = bool(colon)
        if (named and (what != EVIDENCE or not _CLAIM.fullmatch(claim))) or what not in (EVIDENCE, *PREMISES):
            raise UsageError(
                f"--require {text!r}; expected evidence, CLAIM:evidence, or a premise: {', '.join(PREMISES)}"
            )
        return cls(what, claim if named else None)

    def met(self, verdict: Verdict | None) -> bool:
        """Return whether a verdict meets it; one that rejects, or that knows no such claim, never does."""
        if verdict is None or verdict.decision == "rejected":
            return False
        claims = [c for c in verdict.claims if (c.role == "primary" if self.claim is None else c.id == self.claim)]
        return bool(claims) and all(self._of(claim) for claim in claims)

    def _of(self, claim: ClaimResult) -> bool:
        """Return whether a claim meets it; a premise that the claim does not rest on was asked of nobody."""
        if self.what == EVIDENCE:
            return claim.decision == EVIDENCE
        return any(premise.premise == self.what and premise.held for premise in claim.premises)


def satisfied(verdict: Verdict | None, required: Requirement | None) -> bool:
    """Return whether a verdict lets a command end in 0: not rejected, and what is required where anything is."""
    if required is not None:
        return required.met(verdict)
    return verdict is not None and verdict.decision != "rejected"
