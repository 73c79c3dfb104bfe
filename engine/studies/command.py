"""What a study gives the command line: a word after ``kakeya-engine eval``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class StudyCommand(Generic[Found]):
    """One command of a study.

    Attributes:
        description: what ``--help`` says.
        options: adds its options to a parser.
        measure: measures, writes the report and returns what was found.
        report: prints what the report holds.
    """

    description: str
    options: Callable[[argparse.ArgumentParser], None]
    measure: Callable[[argparse.Namespace], Found]
    report: Callable[[Found], None] = lambda _: None

    def run(self, options: argparse.Namespace) -> int:
        """Measure and report; return the exit code, 0 whatever was found.

        Raises:
            EngineError: If the options or the models cannot be used.
        """
        self.report(self.measure(options))
        return 0
