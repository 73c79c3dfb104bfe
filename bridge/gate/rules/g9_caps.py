"""Reports stay within the bounds on number and size.

A bound that is met by leaving out the end leaves out what the end says.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Violation
from bridge.gate.rule import rule
from bridge.limits import REPORTS_MAX_COUNT, RESULT_MAX_BYTES


@rule("G9-CAPS", remedy="Write fewer or smaller reports; raw rows belong in, logs do not.")
def _look(evidence: Evidence) -> Iterator[Violation]:
    total = sum(len(data) for data in evidence.files.values())
    if len(evidence.files) > REPORTS_MAX_COUNT:
        yield Violation(f"{len(evidence.files)} files, at most {REPORTS_MAX_COUNT} are judged")
    if total > RESULT_MAX_BYTES:
        yield Violation(f"{total} bytes of reports, at most {RESULT_MAX_BYTES} are published")
