"""Every required check of a probe holds, and a required accelerator is there.

A probe that says no has answered; it must not look like one that said yes.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G3-PROBE", kinds=(kinds.ENVIRONMENT_PROBE,), remedy="Mend what the check names on the host, then probe again."
)
def _look(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    for index, check in enumerate(report.body["rows"]["checks"]):
        if check["required"] and not check["ok"]:
            yield Violation(f"{check['name']}: {check['detail']}", f"/rows/checks/{index}")
    if report.body["config"]["accelerator_required"] and report.body["environment"]["device"] == "cpu":
        yield Violation("an accelerator is required, the device is cpu", "/environment/device")
