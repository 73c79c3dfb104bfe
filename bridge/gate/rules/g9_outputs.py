"""The files judged are exactly the files the runner recorded: path, size and digest.

The record is the link between what was judged and what was made.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from bridge.gate.interface import Evidence, Skip, Violation
from bridge.gate.rule import rule
from bridge.records import RunRecord


@rule("G9-OUTPUTS", remedy="Fetch the result again: `kakeya-mac fetch ID`; never edit a result.")
def _look(evidence: Evidence) -> Iterator[Violation] | Skip:
    return Skip("no RunRecord") if evidence.record is None else _files(evidence, evidence.record)


def _files(evidence: Evidence, record: RunRecord) -> Iterator[Violation]:
    counts = Counter(output.path for output in record.outputs)
    for path, count in counts.items():
        if count > 1:
            yield Violation(f"recorded {count} times", report=path)
    for output in record.outputs:
        data = evidence.files.get(output.path)
        if data is None:
            yield Violation("the runner recorded this file, it is absent", report=output.path)
        elif len(data) != output.bytes:
            yield Violation(f"{len(data)} bytes, the runner recorded {output.bytes}", report=output.path)
        elif hashlib.sha256(data).hexdigest() != output.sha256:
            yield Violation("another digest than the runner recorded", report=output.path)
    for path in sorted(set(evidence.files) - set(counts)):
        yield Violation("the runner did not record this file", report=path)
