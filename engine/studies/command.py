"""What a study gives the command line: a word after ``kakeya-engine eval``, and what is printed while it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.reports import Sample

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


def show(sample: Sample) -> None:
    """Print one finished sample."""
    stages, counters = sample.stages, sample.counters
    drafted = f", {counters.accepted_tokens}/{counters.drafted_tokens} accepted" if counters.drafted_tokens else ""
    warm = " (warm-up)" if sample.is_warmup else ""
    print(f"  {sample.id}{warm}: {sample.output_tokens} tokens, decode {stages.decode_s:.3f} s{drafted}", flush=True)
