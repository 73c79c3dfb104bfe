"""Out of how many numbers one could have been chosen: its family, not all that a host has measured.

Knows names and digests of questions, not where they are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """What one run asked of one metric.

    Attributes:
        subject: the workload or preset; every cell of a sweep has the same one.
        metric: of it, a ratio or a median alike.
        baseline: what a ratio is against; empty for a median.
        cell: its parameters.
        version: the commit or the edited program, which follow each other in time.
    """

    subject: str
    metric: str
    baseline: str
    cell: str
    version: str = ""

    @property
    def family(self) -> tuple[str, str, str]:
        """What those have in common that a reader would choose from."""
        return self.subject, self.metric, self.baseline


@dataclass(frozen=True)
class Choice:
    """What a number could have been chosen from.

    Attributes:
        looks: how many numbers its interval is corrected for, itself included.
        versions: how many versions of its program were measured: named, and corrected for only where it is their best.
        others: how many questions of other families the host measured: named, and corrected for never.
    """

    looks: int
    versions: int
    others: int


def choose(questions: Iterable[Question], own: Question, *, best: bool = False) -> Choice:
    """Return what a number could have been chosen from.

    Repeats of one question are pooled, so they are one look.

    Args:
        questions: what this host measured within `LOOK_DAYS`, in any order.
        own: this one.
        best: it is said to be the best of several versions.
    """
    every = {*questions, own}
    family = {question for question in every if question.family == own.family}
    versions = len({question.version for question in family})
    cells = {question.cell for question in family if question.version == own.version}
    looks = len(family) if best else len(cells)
    return Choice(looks, versions, len(every) - len(family))
