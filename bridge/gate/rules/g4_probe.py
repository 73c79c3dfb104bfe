"""A probe's checks are named once and its rates follow from its raw times.

A rate is arithmetic on measured seconds: 2 n^3 operations over the median time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule(
    "G4-PROBE",
    kinds=(kinds.ENVIRONMENT_PROBE,),
    remedy="Use `kakeya-engine probe`; it computes the rate from its times.",
)
def _look(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    value = report.body
    names = [check["name"] for check in value["rows"]["checks"]]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Violation(f"check {name!r} occurs {names.count(name)} times", "/rows/checks")
    if not any(check["required"] for check in value["rows"]["checks"]):
        yield Violation("no check is required: such a probe cannot fail", "/rows/checks")
    if value["config"]["backend"] != value["environment"]["backend"]:
        yield Violation("config and environment name different backends", "/config/backend")
    total_s = 0.0
    for index, row in enumerate(value["rows"]["matmul"]):
        total_s += sum(row["seconds"])
        rate = 2 * row["n"] ** 3 / statistics.median(row["seconds"]) / 1e9
        if not math.isclose(rate, row["gflop_per_s"], rel_tol=1e-6):
            yield Violation(f"got {row['gflop_per_s']!r} GFLOP/s, the times give {rate!r}", f"/rows/matmul/{index}")
    if total_s > value["wall_s"] + 0.05:
        yield Violation(f"{total_s:.3f} s of products do not fit into {value['wall_s']:.3f} s", "/rows/matmul")
