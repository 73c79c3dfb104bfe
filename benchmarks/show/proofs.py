"""Lines that tests show, with how these ended last by the committed report of their outcomes."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

from benchmarks.show.line import Line
from benchmarks.studies.proofs import PROOFS, STUDIES
from benchmarks.studies.report import FOLDER, report_of


def proved(text: str, area: str, case: str) -> Line:
    """Return the line of a sentence that tests show.

    Args:
        text: the issue's words.
        area: of the issue.
        case: what the study calls it.

    Raises:
        KeyError: no tests are named for it.
    """
    command = shlex.join(("python", "-m", "pytest", "-n", "0", "-q", *PROOFS[area][case]))
    return Line(text, command, partial(outcome, area, case))


def outcome(area: str, case: str, folder: Path = FOLDER) -> str | None:
    """Return how the tests of a sentence ended last, None while they did not."""
    entries = report_of(area, STUDIES[area].name, folder).entries()
    outcomes: list[str] = [entry["rows"][0]["outcome"] for entry in entries if entry["case"] == case]
    return outcomes[-1] if outcomes else None
