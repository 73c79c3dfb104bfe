"""A result and what the gate here says of it, for a reader who knows who signed it: the one answer of every command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.client.connection.pins import Pins, answer_about
from bridge.client.run.quotation import quotation
from bridge.client.run.result import Result, read_folder_result
from bridge.client.run.run import Run
from bridge.records.quotation import Quotation, of_verdict, word_of
from bridge.records.verdict import ClaimResult, StoredVerdict, Verdict
from bridge.trust.judgement import TrustAnswer
from bridge.trust.verifier import verify_tree


@dataclass(frozen=True)
class JudgedResult:
    """A result, judged again.

    Attributes:
        verdict: None where nothing was judged.
        answer: whether its runner may say what it says; None where that was not asked.
    """

    result: Result
    verdict: Verdict | None
    answer: TrustAnswer | None = None

    @property
    def quotation(self) -> Quotation | None:
        """Whether its primary claim may be quoted; None where nothing was judged."""
        return None if self.verdict is None else quotation(self.verdict, self.answer)

    def quotation_of(self, claim: ClaimResult) -> Quotation | None:
        """Return whether a claim of it may be quoted; None where nothing was judged."""
        return None if self.verdict is None else quotation(self.verdict, self.answer, claim)

    @classmethod
    def of(cls, result: Result, trusted: Pins) -> JudgedResult:
        """Judge a result by the keys of this reader."""
        problems = verify_tree(result.tree.files, run_id=result.id)
        answer = TrustAnswer("altered", str(problems[0])) if problems else answer_about(result.tree.files, trusted)
        return cls(result, None if result.stored is None else result.judged(signed=answer.signed), answer)

    @classmethod
    def of_run(cls, run: Run) -> JudgedResult:
        """Judge the result of a run.

        Raises:
            PendingError: it has no result yet.
        """
        result, answer = run.result(), run.status().answer
        if result.stored is None or answer is None:
            return cls(result, None, answer)
        return cls(result, result.judged(signed=answer.signed), answer)

    @classmethod
    def of_folder(cls, folder: Path, trusted: Pins) -> JudgedResult:
        """Judge the result in a folder.

        Raises:
            IntegrityError: it holds no result tree.
        """
        return cls.of(read_folder_result(folder), trusted)


def first_line(run_id: str, verdict: Verdict | None, answer: TrustAnswer | None) -> str:
    """Return what every command says first of a result: whose it is, the verdict of the gate here, the signature."""
    judged = "not judged" if verdict is None else f"{quotation(verdict, answer).word} ({verdict.profile})"
    return f"{run_id}   {judged}   {'no signature was looked for' if answer is None else answer.shown}"


def said_otherwise(result: Result, verdict: Verdict) -> str | None:
    """Return that a stored verdict is not what the gate here says, with both and the reason; None where it is."""
    stored = result.stored
    if stored is None or stored.decision == verdict.decision:
        return None
    which = "another gate" if stored.gate.digest != verdict.gate.digest else "the same gate, on its host"
    answer = of_verdict(verdict)
    same = word_of_stored(stored) == answer.word  # two classes of one answer: a reader is told the classes
    then = f"the result says {stored.decision if same else word_of_stored(stored)}, by {which}"
    now = f"{verdict.decision}, {answer}" if same else str(answer)
    return (
        f"judged differently: {then} ({stored.gate.digest[:12]}); the gate here ({verdict.gate.digest[:12]}) says {now}"
    )


def word_of_stored(stored: StoredVerdict) -> str:
    """Return the word of the verdict in a result, whichever gate wrote it."""
    return "measured" if stored.decision == "valid_not_citable" else word_of(stored.decision)
