"""What requester and runner may ask of a hosting site.

Every call may raise `bridge.errors.HostingError`; no caller depends on an answer for the bus protocol itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

StatusState = Literal["pending", "success", "failure", "error"]
Feature = Literal["runs", "runners", "cancel", "status", "pulls", "comment"]


@dataclass(frozen=True)
class RepositoryFacts:
    """The site's facts about the repository; `may_push` is about the token's user."""

    name: str
    private: bool
    default_branch: str
    may_push: bool


@dataclass(frozen=True)
class WorkflowRun:
    """One workflow run of a request branch; `conclusion` is None until it ended."""

    id: int
    status: str
    conclusion: str | None
    url: str
    created: str
    workflow: str


@dataclass(frozen=True)
class HostRunner:
    """A self-hosted runner registered at the site."""

    name: str
    online: bool
    busy: bool
    labels: tuple[str, ...]


@dataclass(frozen=True)
class PullRequest:
    """An open pull request: its number, the branch and commit of its head, its page."""

    number: int
    branch: str
    commit: str
    url: str


class Hosting(Protocol):
    """A hosting site, for one repository."""

    def repository(self) -> RepositoryFacts:
        """Return the site's facts about the repository."""
        ...

    def runs(self, branch: str) -> tuple[WorkflowRun, ...]:
        """Return the workflow runs of a branch, newest first."""
        ...

    def refresh(self, run: WorkflowRun) -> WorkflowRun:
        """Return a run as it is now."""
        ...

    def queue_position(self, run: WorkflowRun) -> int | None:
        """Return how many older runs of the same workflow wait before this one, None when it is not queued."""
        ...

    def runners(self) -> tuple[HostRunner, ...]:
        """Return the registered self-hosted runners."""
        ...

    def cancel(self, run: WorkflowRun) -> None:
        """Ask the site to cancel a run."""
        ...

    def set_status(self, commit: str, state: StatusState, context: str, description: str, url: str) -> None:
        """Set a commit status, unless the newest one of its context says exactly that."""
        ...

    def comment(self, pull: int, marker: str, body: str) -> str:
        """Write a comment, or rewrite our own that carries the marker; return its URL."""
        ...

    def open_pulls(self, branch: str | None, commits: frozenset[str]) -> tuple[PullRequest, ...]:
        """Return the open pull requests whose head is this branch or one of these commits."""
        ...

    def may(self, feature: Feature) -> bool:
        """Return whether the token may use a feature, without changing anything."""
        ...
