"""The part of `policy.toml` about the hosting site: what Actions may run here, and what is told there of results.

Knows values and their shapes.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bridge.records import Record
from bridge.records.base import Sha256, Text
from bridge.runner.trust_policy import AbsolutePath


class WorkflowPolicy(Record):
    """A workflow file that may run on this host, for `kakeya-runner job-hook`: its digest decides."""

    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    path: Annotated[str, Field(pattern=r"^\.github/workflows/[\w.-]+\.ya?ml$")]
    sha256: Sha256
    refs: Annotated[tuple[Text, ...], Field(min_length=1)]


class ActionsPolicy(Record):
    """What the Actions job hook accepts.

    Attributes:
        stop: the command that stops the Actions service on a refusal.
        token_file: a read-only token for workflow files of private repositories; None reads them anonymously.
    """

    workflows: tuple[WorkflowPolicy, ...] = ()
    stop: tuple[Text, ...] = ()
    token_file: AbsolutePath | None = None


class HostingPolicy(Record):
    """What the runner tells the hosting site of a result; git alone needs none of it.

    Attributes:
        status: set a commit status with the verdict on the workload's commit, else on the request's.
        comment: comment on the open pull request whose head is the workload's commit or the request branch.
        token_file: a file of the runner's alone with the token; None takes it from the environment or `gh`.
    """

    status: bool = False
    comment: bool = False
    token_file: AbsolutePath | None = None
