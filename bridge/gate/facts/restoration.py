"""What a report says of the f_theta that made evicted rows again: named where an arm restores by one, nowhere else."""

from __future__ import annotations

from bridge.gate.declared.views import StatedRestoration
from bridge.gate.interface import Report
from bridge.gate.report_kinds import BOUNDED_KV, BOUNDED_RECALL


def restoration_of(report: Report) -> StatedRestoration | None:
    """Return name and digest of a report's f_theta, None where it names none, or its kind knows none."""
    return report.body["config"].get("restoration") if report.kind in {BOUNDED_KV, BOUNDED_RECALL} else None


def misnamed(report: Report, *, restores: bool) -> str | None:
    """Return what is wrong with the f_theta that a report names, None where nothing is.

    Args:
        report: of a kind whose arms may restore.
        restores: whether an arm of it makes rows again by an f_theta.
    """
    named = restoration_of(report)
    if restores == (named is not None):
        return None
    if named is None:
        return "rows are made again by an f_theta that nothing names: expected its name and digest"
    return f"no arm restores by an f_theta, {named['name']!r} is named"
