"""The part of `policy.toml` about the hosting site: what Actions may run here, and what is told there of results.

Knows values and their shapes.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from bridge.records.base import Record, Sha256, Text
from bridge.runner.policy.trust import AbsolutePath


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
        server: the site that workflow files are read from; None takes what the job says, and then no token is sent.
        token_file: a read-only token for workflow files of private repositories, sent to `server` alone.
    """

    workflows: tuple[WorkflowPolicy, ...] = ()
    stop: tuple[Text, ...] = ()
    server: Annotated[str, Field(pattern=r"^(https://|file://|http://127\.0\.0\.1)[^\s@]+[^\s@/]$")] | None = None
    token_file: AbsolutePath | None = None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.token_file is not None and self.server is None:
            raise ValueError('token_file needs server, the only place it is sent to: server = "https://github.com"')
        return self


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
