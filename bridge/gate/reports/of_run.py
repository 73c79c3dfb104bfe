"""Which files of a run are judged as reports, and under which thresholds."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.gate import profiles
from bridge.gate.interface import Report, ReportProblem
from bridge.gate.reports.loading import load
from bridge.gate.reports.workload import load as load_workload
from bridge.limits import REPORTS_MAX_COUNT
from bridge.records.jobspec import ATTACHMENTS, JobSpec


def load_of_run(
    files: Mapping[str, bytes], spec: JobSpec | None
) -> tuple[tuple[Report, ...], Mapping[str, tuple[ReportProblem, ...]]]:
    """Return the reports of a run, and what is wrong with its files.

    Args:
        files: bytes of every file that the run left, by path.
        spec: what was to run; None for report files outside a run.
    """
    if spec is not None and spec.workload is not None:
        return load_workload(files, spec, spec.workload)
    names = _report_paths(files, spec)
    return load({path: files[path] for path in names[:REPORTS_MAX_COUNT]})


def _report_paths(files: Mapping[str, bytes], spec: JobSpec | None) -> list[str]:
    """Return the files to be judged as reports: the declared ones, or all of them outside a run."""
    if spec is None:
        return sorted(files)
    declared = {output.path for output in spec.outputs if output.kind not in ATTACHMENTS}
    return sorted(declared & set(files))


def profile_of(reports: tuple[Report, ...], spec: JobSpec | None) -> Mapping[str, object]:
    """Return the thresholds for reports: those that the job spec names, as strict as its profile asks."""
    measuring = (
        spec.profile
        if spec is not None
        else next((report.value["run"]["profile"] for report in reports if report.value), "smoke")
    )
    gate_profile = spec.gate_profile if spec is not None and spec.gate_profile in profiles.names() else "default"
    return profiles.named(gate_profile, measuring)
