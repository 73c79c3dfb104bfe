"""What the issue on the engine's reach promises to show of models."""

from __future__ import annotations

from typing import Any

from benchmarks.show.line import Line
from benchmarks.studies.report import report_of

STUDIES = "make studies AREA=engine"


def rows(study: str) -> list[dict[str, Any]]:
    """Return the rows of a committed report, each with its case."""
    return [row | {"case": entry["case"]} for entry in report_of("engine", study).entries() for row in entry["rows"]]


def identity() -> str | None:
    """Return how many drafted answers differ from the library's own."""
    found = rows("families")
    if not found:
        return None
    answers, differ, tokens = (sum(row[name] for row in found) for name in ("answers", "differ", "tokens"))
    cases = len({row["case"] for row in found})
    return f"{differ} of {answers} answers differ ({tokens} tokens, {cases} families on a backend)"


def state_cost() -> str | None:
    """Return the largest share of a block that putting states back takes, by backend."""
    largest: dict[str, float] = {}
    for row in rows("state-cost"):
        largest[row["case"]] = max(largest.get(row["case"], 0.0), row["share"])
    said = [f"{case} {share:.1%} of a block" for case, share in sorted(largest.items())]
    return "at most " + ", ".join(said) if said else None


LINES = (
    Line(
        "identity against stock greedy decoding for every family x backend (≥ 24 prompts each, past windows, hybrids "
        "included) in fp32",
        STUDIES,
        identity,
    ),
    Line("hybrids: cost of exact rollback measured", STUDIES, state_cost),
    Line(
        "random-weight folders in the published layouts of 15 targets and drafters: open, chat and generate on both "
        "backends, or one line says what is missing",
        "python -m pytest -m '' tests/conformance/engine_families/test_published_folders.py",
    ),
)
