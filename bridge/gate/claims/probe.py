"""The claim of an environment probe: how many of the required checks hold."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.claims import Draft
from bridge.gate.interface import Evidence, Report


def drafts(report: Report, _evidence: Evidence) -> Iterator[Draft]:
    """Yield the claim."""
    checks = report.body["rows"]["checks"]
    required = [check for check in checks if check["required"]]
    held = [check for check in required if check["ok"]]
    environment = report.body["environment"]
    where = f"{environment['backend']}, {environment['device']}"
    yield Draft(
        id="checks",
        metric="required_checks_held",
        role="primary",
        value=float(len(held)),
        unit="checks",
        n=len(required),
        wording=f"{len(held)} of {len(required)} required checks hold ({where})",
        detail={
            "optional_held": sum(1 for check in checks if check["ok"] and not check["required"]),
            "optional": len(checks) - len(required),
        },
    )
