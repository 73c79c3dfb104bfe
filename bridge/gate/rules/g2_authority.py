"""The record is vouched for: by the runner that is judging, or by a verified attestation.

Anybody can write a consistent run.json beside a report; what makes it evidence is who saw the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule


@rule(
    "G2-AUTHORITY",
    severity="not_citable",
    remedy="Verify the result's attestation first: `kakeya-mac verify ID`; an unsigned result shows integrity only.",
)
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    if evidence.record is None:
        return Skip("no RunRecord")
    if evidence.authority == "unattested":
        return iter((Violation("judged away from the host, without a verified attestation over run.json"),))
    return iter(())
