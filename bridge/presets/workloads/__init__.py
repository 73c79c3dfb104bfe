"""Workload folders: an owner's own program, what it takes, what it reports, and how that is judged."""

from bridge.presets.workloads.folder import WorkloadFolder, read_folder
from bridge.presets.workloads.problems import WorkloadError, problems

__all__ = ["WorkloadError", "WorkloadFolder", "problems", "read_folder"]
