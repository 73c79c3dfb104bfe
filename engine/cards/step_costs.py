"""What steps with a drafter cost beside plain ones, out of a report of `eval verify-cost`, and where drafting pays."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from engine.errors import UsageError


def step_costs(report: Path) -> dict[str, Any]:
    """Return what a draft and its verification take together, in plain steps, by rows of the block.

    Medians of the report's longest context.

    Returns:
        ``{"backend", "machine", "context_tokens", "plain_s", "costs": {rows: plain steps}}``

    Raises:
        UsageError: If it is no such report, or holds no drafts.
    """
    try:
        body = json.loads(report.read_text())
        verify, draft = body["rows"]["verify"], body["rows"]["draft"]
        context = max(row["context_tokens"] for row in draft)
        verify_s = {row["rows"]: median(row["seconds"]) for row in verify if row["context_tokens"] == context}
        draft_s = {
            row["drafted_tokens"] + 1: median(row["seconds"]) for row in draft if row["context_tokens"] == context
        }
        where = {name: str(body["environment"][name]) for name in ("backend", "machine")}
        costs = {str(rows): (verify_s[rows] + draft_s[rows]) / verify_s[1] for rows in sorted(draft_s)}
    except (OSError, ValueError, LookupError, TypeError, ZeroDivisionError) as error:
        raise UsageError(
            f"{report} is no report of what verifying and drafting cost: {error!r}; make one with `kakeya-engine eval "
            "verify-cost --drafter FOLDER`"
        ) from error
    return where | {"context_tokens": context, "plain_s": verify_s[1], "costs": costs}


def verdict(cost: float, lower: float, upper: float) -> str:
    """Return whether a step that costs so many plain ones pays, by the bounds of what it commits."""
    if lower > cost:
        return "pays"
    return "does not pay" if upper < cost else "undecided"
