"""Figures of sentences that tests show, from the committed report of their outcomes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.studies import proofs
from benchmarks.studies.report import FOLDER, report_of


def proof(case: str, folder: Path = FOLDER) -> str | None:
    """Return how the tests of a sentence ended last.

    Raises:
        KeyError: no tests are named for it.
    """
    proofs.PROOFS[case]
    outcomes = [
        entry["rows"][0]["outcome"]
        for entry in report_of("executor", proofs.STUDY.name, folder).entries()
        if entry["case"] == case
    ]
    return outcomes[-1] if outcomes else None


def command(case: str) -> str:
    """Return what an outsider runs to see them."""
    return " ".join(("python -m pytest -q", *(f'"{word}"' if " " in word else word for word in proofs.PROOFS[case])))
