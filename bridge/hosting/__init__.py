"""What the site that hosts the repository adds when its API may be used. Optional everywhere: git alone suffices."""

from bridge.hosting.interface import Feature, Hosting, HostRunner, PullRequest, RepositoryFacts, WorkflowRun

__all__ = ["Feature", "HostRunner", "Hosting", "PullRequest", "RepositoryFacts", "WorkflowRun"]
