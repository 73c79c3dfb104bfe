"""How far an earlier attempt may enter a claim, by what its own gate said of it when it ended.

Knows verdicts and premises, not what is pooled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from bridge.gate.interface import Evidence
from bridge.records.verdict import Premise, Verdict

Use = Literal["whole", "doubtful", "left out"]
_SPOILS: Final[frozenset[Premise]] = frozenset({"bound", "code", "inputs", "outputs", "times", "machine"})
"""Few launches and earlier attempts spoil no number, so that `ratio` and `attempts` are not asked for."""
_SLEPT: Final = "the machine slept"
_MACHINE_LAYER: Final = "G8-"
_OF_A_CHECK: Final = re.compile(r"G[0-9]-[A-Z0-9-]+: (?!earlier attempt )")
"""How a reason begins that a check found in an attempt. What a claim lacks by itself, or by an attempt before it, the
claim over the pool finds out again."""


@dataclass(frozen=True)
class Standing:
    """What becomes of one earlier attempt.

    Attributes:
        use: ``whole`` is pooled; ``doubtful`` is what the program itself could have spoilt, so that the claim is what
            holds with and without it; ``left out`` is of other code, or was spoilt from outside as the runner saw.
        why: premises that it lost, in words; empty where it is whole.
        reasons: what took them, as `CODE: message`.
    """

    use: Use
    why: str = ""
    reasons: tuple[str, ...] = ()


def standing_of(name: str, evidence: Evidence, claim: str | None = None) -> Standing:
    """Return what becomes of an earlier attempt in a claim.

    Args:
        name: its run id.
        evidence: with the verdict on it.
        claim: id of the claim; None for the primary ones.
    """
    return evidence.derived(("standing", name, claim), lambda: _judged(evidence.earlier_verdicts.get(name), claim))


def _judged(verdict: Verdict | None, claim: str | None) -> Standing:
    if verdict is None:
        return Standing("doubtful", "what its gate said is not known")
    fell = _fallen(verdict, claim)
    lost = sorted(fell)
    reasons = tuple(reason for premise in lost for reason in fell[premise])
    if "code" in fell:
        return Standing("left out", "other code", reasons)
    if lost and all(_SLEPT in one or one.startswith(_MACHINE_LAYER) for one in reasons):
        return Standing("left out", "the machine was not fit", reasons)
    if lost or verdict.decision == "rejected":
        return Standing("doubtful", f"lost {', '.join(lost) or 'everything'}", reasons)
    return Standing("whole")


def _fallen(verdict: Verdict, claim: str | None) -> dict[Premise, tuple[str, ...]]:
    """Return what took each premise from a claim; from the run, where it was not made."""
    made = [one for one in verdict.claims if (one.role == "primary" if claim is None else one.id == claim)]
    fell: dict[Premise, tuple[str, ...]] = {}
    for one in made:
        for result in one.premises:
            by_a_check = tuple(reason for reason in result.why if _OF_A_CHECK.match(reason))
            if by_a_check and result.premise in _SPOILS:
                fell[result.premise] = (*fell.get(result.premise, ()), *by_a_check)
    if not made:
        for finding in verdict.findings:
            reason = f"{finding.code}: {finding.message}"
            if _OF_A_CHECK.match(reason) and finding.premise in _SPOILS:
                fell[finding.premise] = (*fell.get(finding.premise, ()), reason)
    return fell


def left_out(name: str, evidence: Evidence, claim: str | None = None) -> bool:
    """Whether an earlier attempt is in no pool of a claim."""
    return standing_of(name, evidence, claim).use == "left out"


def told(names: Iterable[str], evidence: Evidence, claim: str | None = None) -> str:
    """Return which earlier attempts a claim leaves out, or is held against with and without; empty where all are whole.

    Args:
        names: run ids of the attempts that could have been pooled.
        evidence: with the verdicts on them.
        claim: its id.
    """
    words = {"left out": "left out", "doubtful": "in and out"}
    counts: dict[tuple[str, str], int] = {}
    for name in names:
        standing = standing_of(name, evidence, claim)
        if standing.use != "whole":
            spoilt = (words[standing.use], standing.why)
            counts[spoilt] = counts.get(spoilt, 0) + 1
    return "".join(
        f", {count} earlier attempt{'s' if count > 1 else ''} {use} ({why})"
        for (use, why), count in sorted(counts.items())
    )
