"""Claims that the rows do not bear out: nobody reads what a report claims itself."""

from __future__ import annotations

from tests.integration.gate.lies.registry import told
from tests.integration.gate.workload import Report


@told("a-wrong-ratio", decision="valid", reason="passed")
def _(report: Report) -> None:
    report["claims"][0]["value"] *= 1.02


@told("a-claim-nobody-can-recompute", decision="valid", reason="passed")
def _(report: Report) -> None:
    report["claims"].append(
        {"id": "quality", "metric": "quality", "arms": [], "value": 0.99, "unit": "share", "wording": None}
    )
