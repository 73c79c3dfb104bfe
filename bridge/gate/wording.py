"""The sentences: what may be said of a number follows from its interval, never from its value.

Knows intervals and names, not reports.
"""

from __future__ import annotations

from bridge.records import ClaimResult, Decision


def headline(decision: Decision, why: tuple[str, ...], results: tuple[ClaimResult, ...]) -> str:
    """Return the first sentence of a verdict: what may be quoted, or what stopped it."""
    if decision == "rejected":
        return f"Rejected, nothing may be quoted: {_brief(why)}"
    if decision == "valid_not_citable":
        return f"Valid, but nothing may be quoted: {_brief(why)}"
    return "May be quoted: " + "; ".join(c.wording for c in results if c.citable and c.role == "primary") + "."


def _brief(why: tuple[str, ...]) -> str:
    if not why:
        return "no reason was recorded."
    more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
    return f"{why[0]}{more}"
