"""A test suite's junit file is the one its report names.

Two files of one run that tell different stories are one story too many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G4-JUNIT", kinds=(kinds.TEST_SUITE,), remedy="Write the junit file first, then its digest into the report."
)
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    said = report.body["rows"].get("junit_digest")
    files = [o.path for o in evidence.spec.outputs if o.kind == "junit"] if evidence.spec else []
    for path in files:
        data = evidence.files.get(path)
        if data is not None and hashlib.sha256(data).hexdigest() != said:
            yield Violation(f"{path} is not the file whose digest the report carries", "/rows/junit_digest")
    if said is not None and evidence.spec is not None and not files:
        yield Violation("junit_digest names a file, the preset declares none", "/rows/junit_digest")
