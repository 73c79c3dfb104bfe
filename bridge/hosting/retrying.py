"""How often and how long a question to GitHub waits. Imports PyGithub, so it is imported when first used."""

from __future__ import annotations

from typing import Any

from github import GithubException, GithubRetry
from urllib3 import Retry

WAIT_MAX_S = 20.0
SECONDARY_WAIT_S = 5.0


class BoundedRetry(GithubRetry):  # type: ignore[misc]  # PyGithub is optional, so it has no types here
    """GitHub's own retry rules, but never a wait longer than `WAIT_MAX_S`: a person or a result waits behind it.

    Without the bound a spent primary limit is waited for until its reset, and a `Retry-After` as long as the site says.
    """

    def __init__(self, secondary_rate_wait: float = SECONDARY_WAIT_S, **kwargs: Any) -> None:
        kwargs = {"max_rate_limit_wait": WAIT_MAX_S, "raise_on_status": False, **kwargs}
        super().__init__(secondary_rate_wait=secondary_rate_wait, **kwargs)

    def increment(
        self, method: str | None = None, url: str | None = None, response: Any = None, *rest: Any, **named: Any
    ) -> Retry:
        """Return the next retry.

        Raises:
            GithubException: the site asks for a longer wait than the bound.
        """
        asked_s = (response.headers.get("Retry-After") or "") if response is not None else ""
        if asked_s.isdigit() and int(asked_s) > WAIT_MAX_S:
            response.drain_conn()
            response.release_conn()
            answer = {"message": f"GitHub asks to wait {asked_s} s"}
            raise GithubException(response.status, answer, dict(response.headers))
        following: Retry = super().increment(method, url, response, *rest, **named)
        return following
