"""A report names this run: id, request digest, preset, parameters and profile.

Otherwise an accurate run of one system and a fast run of another can be put together, or an old report re-used.
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule


@report_rule("G1-RUN", remedy="Let the workload copy the KAKEYA_* variables of its own run; never reuse a report.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    spec, run = evidence.spec, report.body["run"]
    if spec is None:
        return
    expected: dict[str, object] = {
        "id": evidence.run_id,
        "request_digest": spec.request_digest,
        "preset": spec.preset,
        "params": spec.params,
        "profile": spec.profile,
    }
    for name, wanted in expected.items():
        if run[name] != wanted or type(run[name]) is not type(wanted):
            yield Violation(f"{name}: got {run[name]!r}, expected {wanted!r}", f"/run/{name}")
    for name, value in spec.params.items():
        got = run["params"].get(name)
        if type(got) is not type(value):  # 1, 1.0 and true are equal to Python
            yield Violation(f"parameter {name}: got {got!r}, expected {value!r}", f"/run/params/{name}")
