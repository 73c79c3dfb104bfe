"""GitHub through PyGithub, imported when first used. Rate limits are waited for within a bound (`retrying`).

Knows nothing about requests or verdicts; texts arrive ready and escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from bridge.errors import HostingError, install_remedy
from bridge.hosting.interface import Feature, HostRunner, PullRequest, RepositoryFacts, StatusState, WorkflowRun
from bridge.hosting.place import API_URL
from bridge.hosting.token import Token

if TYPE_CHECKING:
    from github.Repository import Repository

TIMEOUT_S = 15
RETRIES = 3
RUNS_MAX_COUNT = 200
COMMENTS_MAX_COUNT = 500
PULLS_MAX_COUNT = 300
NO_COMMIT = "0" * 40
WORKFLOW_AUTHOR = "github-actions[bot]"
DESCRIPTION_MAX_CHARS = 140  # GitHub refuses longer commit status texts

REMEDIES = {
    401: "the token is not valid: `gh auth login`, or set GH_TOKEN",
    403: "the token lacks a permission, or a rate limit is spent: `kakeya-mac doctor` says what each scope is for",
    404: "the repository is not visible to this token, or the workflow or run does not exist",
    409: "the run's state changed meanwhile: ask again",
    422: "GitHub does not accept these values: check the branch, the commit and the workflow's inputs",
    429: "a rate limit is spent: wait, or go on with git alone",
}


class GitHubHosting:
    """`Hosting` for one GitHub repository.

    Args:
        repository: `owner/name`.
        token: what to authenticate with.
        api_url: REST endpoint, another one for GitHub Enterprise.
        pause_s: least time between two requests, as GitHub advises; 0 in tests only.
        retries: how often a failed or limited request is sent again.
    """

    def __init__(
        self, repository: str, token: Token, *, api_url: str = API_URL, pause_s: float = 0.25, retries: int = RETRIES
    ) -> None:
        self._name = repository
        self._options: dict[str, Any] = {"base_url": api_url, "timeout": TIMEOUT_S, "seconds_between_requests": pause_s}
        self._token = token
        self._retries = retries
        self._opened: Repository | None = None
        self._runs: dict[int, Any] = {}
        self._authors: set[str | None] = set()
        self._asked_who = False

    def repository(self) -> RepositoryFacts:
        """Return GitHub's facts about the repository."""
        with _told(f"read {self._name}"):
            repository = self._repository
            repository.update()
            permissions = repository.permissions
            if repository.private is None:
                raise ValueError("neither private nor public")
            return RepositoryFacts(
                repository.full_name,
                repository.private,
                repository.default_branch,
                bool(permissions and permissions.push),
            )

    def runs(self, branch: str) -> tuple[WorkflowRun, ...]:
        """Return the workflow runs of a branch, newest first."""
        with _told(f"list the workflow runs of {branch}"):
            listed = list(islice(self._repository.get_workflow_runs(branch=branch), RUNS_MAX_COUNT))
            self._runs.update({run.id: run for run in listed[:1]})
            return tuple(_run(run) for run in listed)

    def refresh(self, run: WorkflowRun) -> WorkflowRun:
        """Return a run as it is now; one that has not changed costs nothing of the rate limit (ETag)."""
        with _told(f"read workflow run {run.id}"):
            if run.id not in self._runs:
                self._runs[run.id] = self._repository.get_workflow_run(run.id)
            self._runs[run.id].update()
            return _run(self._runs[run.id])

    def queue_position(self, run: WorkflowRun) -> int | None:
        """Return how many older runs of the same workflow wait, None when this one does not wait."""
        if run.status not in {"queued", "pending", "waiting", "requested"}:
            return None
        with _told("list the queued workflow runs"):
            waiting = islice(self._repository.get_workflow_runs(status="queued"), RUNS_MAX_COUNT)
            return sum(
                1
                for other in waiting
                if other.path == run.workflow and (_moment(other), other.id) < (run.created, run.id)
            )

    def runners(self) -> tuple[HostRunner, ...]:
        """Return the registered self-hosted runners."""
        with _told("list the self-hosted runners"):
            return tuple(
                HostRunner(
                    runner.name,
                    runner.status == "online",
                    runner.busy,
                    tuple(str(label["name"]) for label in runner.labels),
                )
                for runner in self._repository.get_self_hosted_runners()
            )

    def cancel(self, run: WorkflowRun) -> None:
        """Ask GitHub to cancel a run."""
        with _told(f"cancel workflow run {run.id}"):
            self._post(f"actions/runs/{run.id}/cancel")

    def set_status(self, commit: str, state: StatusState, context: str, description: str, url: str) -> None:
        """Set a commit status, unless the newest one of its context says exactly that; a long text is cut."""
        with _told(f"set the status of {commit[:12]}"):
            cut = (
                description
                if len(description) <= DESCRIPTION_MAX_CHARS
                else description[: DESCRIPTION_MAX_CHARS - 1] + "…"
            )
            page = {"target_url": url} if url else {}
            target = self._repository.get_commit(commit)
            newest = target.get_combined_status().statuses
            there = {(each.context, each.state, each.description or "", each.target_url or "") for each in newest}
            if (context, state, cut, url) not in there:
                target.create_status(state, description=cut, context=context, **page)

    def comment(self, pull: int, marker: str, body: str) -> str:
        """Write a comment, or rewrite our own that carries the marker, so that a repeated run does not add another."""
        hidden = f"<!-- {marker} -->"
        text = f"{hidden}\n{body}"
        with _told(f"comment on pull request {pull}"):
            issue = self._repository.get_pull(pull)
            for comment in islice(issue.get_issue_comments(), COMMENTS_MAX_COUNT):
                if comment.body.startswith(hidden) and self._wrote(comment):
                    comment.edit(text)
                    return str(comment.html_url)
            written = issue.create_issue_comment(text)
            self._authors.add(_author(written))
            return str(written.html_url)

    def _wrote(self, comment: Any) -> bool:
        """Return whether a comment is by this token's own user: other users can write the marker into theirs."""
        if not self._asked_who:
            self._authors.add(self._login())
            self._asked_who = True
        author = _author(comment)
        return author is not None and author in self._authors

    def _login(self) -> str:
        """Return the login of this token; a workflow's token may not read it, and writes under one known name."""
        from github import GithubException, RateLimitExceededException

        try:
            _, user = self._repository.requester.requestJsonAndCheck("GET", "/user")
        except RateLimitExceededException:
            raise
        except GithubException as error:
            if error.status == 403:
                return WORKFLOW_AUTHOR
            raise
        return str(user["login"])

    def open_pulls(self, branch: str | None, commits: frozenset[str]) -> tuple[PullRequest, ...]:
        """Return the open pull requests whose head is this branch or one of these commits."""
        with _told("list the open pull requests"):
            listed = islice(self._repository.get_pulls(state="open"), PULLS_MAX_COUNT)
            requests = [PullRequest(pull.number, pull.head.ref, pull.head.sha, pull.html_url) for pull in listed]
        return tuple(pull for pull in requests if pull.commit in commits or pull.branch == branch)

    def may(self, feature: Feature) -> bool:
        """Return whether the token may use a feature, by asking for something that does not exist where one writes.

        A write to a commit, run or issue that is not there changes nothing: 403 says that the permission is missing,
        404 or 422 that only the thing is.
        """
        try:
            with _told(f"try {feature}"):
                self._try(feature)
        except HostingError as error:
            if error.status == 403 and not error.is_limit:
                return False
            if error.status in {404, 409, 422} and feature in {"cancel", "status", "comment"}:
                return True
            if error.status == 404:  # where reading is not allowed the site says that nothing is there
                return False
            raise
        return True

    def _try(self, feature: Feature) -> None:
        match feature:
            case "runs":
                next(iter(self._repository.get_workflow_runs()), None)
            case "runners":
                next(iter(self._repository.get_self_hosted_runners()), None)
            case "pulls":
                next(iter(self._repository.get_pulls(state="open")), None)
            case "cancel":
                self._post("actions/runs/0/cancel")
            case "status":
                self._post(f"statuses/{NO_COMMIT}", {"state": "pending", "context": "kakeya/doctor"})
            case "comment":
                self._post("issues/0/comments", {"body": "kakeya doctor"})

    def _post(self, path: str, body: dict[str, str] | None = None) -> None:
        repository = self._repository
        repository.requester.requestJsonAndCheck("POST", f"{repository.url}/{path}", input=body)

    @property
    def _repository(self) -> Repository:
        if self._opened is None:
            from github import Auth, Github

            from bridge.hosting.retrying import BoundedRetry

            retry = BoundedRetry(total=self._retries)
            api = Github(auth=Auth.Token(self._token.text), retry=retry, lazy=True, **self._options)
            self._opened = api.get_repo(self._name)
        return self._opened


def _run(run: Any) -> WorkflowRun:
    return WorkflowRun(run.id, run.status, run.conclusion, run.html_url, _moment(run), run.path)


def _author(comment: Any) -> str | None:
    """Return who wrote a comment, None where the account is gone."""
    return None if comment.user is None else str(comment.user.login)


def _moment(run: Any) -> str:
    return str(run.created_at.isoformat())


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn what PyGithub and requests raise into one clear error; the token is in none of their texts."""
    try:
        import requests
        from github import BadAttributeException, GithubException, RateLimitExceededException
    except ImportError as error:
        raise HostingError("PyGithub is not installed", remedy=install_remedy("github")) from error
    try:
        yield
    except GithubException as error:
        message = error.data.get("message", "") if isinstance(error.data, dict) else ""
        remedy = REMEDIES.get(error.status, "GitHub has a fault: try again later, or go on with git alone")
        limit = error.status == 429 or isinstance(error, RateLimitExceededException) or "asks to wait" in message
        raise HostingError(
            f"could not {what}: HTTP {error.status} {message}".rstrip(),
            remedy=REMEDIES[429] if limit else remedy,
            status=error.status,
            is_limit=limit,
        ) from error
    except (BadAttributeException, AssertionError, LookupError, TypeError, ValueError) as error:
        raise HostingError(
            f"could not {what}: the answer is not GitHub's ({type(error).__name__})",
            remedy="check KAKEYA_GITHUB_API and what is between here and there, or go on with git alone",
        ) from error
    except requests.RequestException as error:
        raise HostingError(
            f"could not {what}: no answer ({type(error).__name__})", remedy="check the network, or go on with git alone"
        ) from error
