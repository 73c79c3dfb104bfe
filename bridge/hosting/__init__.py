"""What the site that hosts the repository adds when its API may be used. Optional everywhere: git alone suffices."""

from bridge.hosting.interface import Hosting, HostRunner, RepositoryFacts, WorkflowRun

__all__ = ["HostRunner", "Hosting", "RepositoryFacts", "WorkflowRun"]
