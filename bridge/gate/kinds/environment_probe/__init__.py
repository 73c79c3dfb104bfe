"""Checks of a machine: its claims and its rules."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from bridge.gate.claims import ClaimDraft
from bridge.gate.facts.accelerators import accelerator_of, device_words
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.report_kinds import ENVIRONMENT_PROBE
from bridge.gate.rule import report_rule


def recompute(report: Report, evidence: Evidence) -> Iterator[ClaimDraft]:
    """Yield the claim."""
    checks = report.body["rows"]["checks"]
    required = [check for check in checks if check["required"]]
    held = [check for check in required if check["ok"]]
    environment = report.body["environment"]
    known = () if evidence.record is None else evidence.record.host.devices
    where = device_words(str(environment["backend"]), str(environment["device"]), known)
    yield ClaimDraft(
        id="checks",
        metric_name="required_checks_held",
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


@report_rule(
    "G3-PROBE", "outputs", kinds=(ENVIRONMENT_PROBE,), remedy="Mend what the check names on the host, then probe again."
)
def require_probe_checks(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    """Every required check of a probe holds, and a required accelerator is there.

    A probe that says no has answered; it must not look like one that said yes.
    """
    for index, check in enumerate(report.body["rows"]["checks"]):
        if check["required"] and not check["ok"]:
            yield Violation(f"{check['name']}: {check['detail']}", f"/rows/checks/{index}")
    if report.body["config"]["accelerator_required"] and accelerator_of(report) is None:
        yield Violation("an accelerator is required, the device is cpu", "/environment/device")


@report_rule(
    "G4-PROBE",
    "outputs",
    kinds=(ENVIRONMENT_PROBE,),
    remedy="Use `kakeya-engine probe`; it computes the rate from its times.",
)
def recompute_rates(report: Report, _evidence: Evidence) -> Iterator[Violation]:
    """A probe's checks are named once and its rates follow from its raw times.

    A rate is arithmetic on measured seconds: 2 n^3 operations over the median time.
    """
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
