"""What the issue on the engine's reach promises to show of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.show.line import Line
from benchmarks.show.proofs import proved
from benchmarks.studies.dispatch import DRAFTED
from benchmarks.studies.report import report_of

STUDIES = "make studies AREA=engine"
COMPARED = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "engine"


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


def dispatch() -> str | None:
    """Return operations a step and its time over the roofline at the longest draft, by backend and way."""
    said = [
        f"{row['case'].partition(',')[0]}{', ' + row['way'] if 'way' in row else ''} {row['operations']} operations, "
        f"{row['over_roofline']:.1f} times reading the weights"
        for row in rows("dispatch")
        if row["drafted"] == max(DRAFTED)
    ]
    return "; ".join(said) or None


def beside_libraries(folder: Path = COMPARED) -> str | None:
    """Return the speed of the plain loop beside the library's own in the committed comparisons."""
    said = []
    for path in sorted(folder.glob("compare-*.json")):
        found = json.loads(path.read_text())
        row = next(row for row in found["rows"]["standings"] if row["peer"] == "engine, no drafter")
        value, low, high, count = (row["speed"][name] for name in ("value", "low", "high", "n"))
        said.append(f"{path.stem.removeprefix('compare-')} {value:.3f} [{low:.3f}, {high:.3f}], n = {count}")
    return "; ".join(said) or None


LINES = (
    Line(
        "identity against stock greedy decoding for every family x backend (≥ 24 prompts each, past windows, hybrids "
        "included) in fp32",
        STUDIES,
        identity,
    ),
    Line(
        "`bench compare` in turns, n = 30: plain loop against mlx-lm and transformers with its lower bound ≥ .98",
        "python -m benchmarks.engine_study",
        beside_libraries,
    ),
    Line(
        "time per step over the roofline and operations a step, before (built anew) and after (replayed)",
        STUDIES,
        dispatch,
    ),
    Line("hybrids: cost of exact rollback measured", STUDIES, state_cost),
    proved(
        "random-weight folders in the published layouts of 15 targets and drafters: open, chat and generate on both "
        "backends, or one line says what is missing",
        "engine",
        "published layouts",
    ),
    proved(
        "bad input: half a hybrid state, missing expert, template with an error, drafter of another family, dtype not "
        "on this device: one line",
        "engine",
        "bad input",
    ),
)
