"""`kakeya-runner job-hook`: what the Actions runner asks before and after each job."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from bridge.errors import UsageError
from bridge.runner import job_hook
from bridge.runner.hosting_policy import ActionsPolicy
from bridge.runner.workflow_file import reader

REFUSED = 7


def answer(
    action: str, file: str | None, actions: Callable[[], ActionsPolicy], state: Path, say: Callable[[str], None]
) -> int:
    """Answer one question of the Actions runner and return the exit code.

    Raises:
        UsageError: `digest` without a file.
    """
    if action == "digest":
        if file is None:
            raise UsageError("digest needs a file", remedy="kakeya-runner job-hook digest .github/workflows/NAME.yml")
        print(hashlib.sha256(Path(file).read_bytes()).hexdigest())
        return 0
    if action == "completed":
        for folder in job_hook.completed(os.environ):
            say(f"emptied {folder}")
        return 0
    try:
        policy = actions()
    except UsageError as error:  # without a policy nothing is allowed, and that must stop the worker too
        say(error.message)
        policy = ActionsPolicy()
    allowed = [job_hook.AllowedWorkflow(w.repository, w.path, w.sha256, w.refs) for w in policy.workflows]
    read = reader(os.environ.get("GITHUB_SERVER_URL", "https://github.com"), state)
    decision = job_hook.started(os.environ, allowed, read, policy.stop)
    say(("accepted: " if decision.accepted else "refused: ") + decision.why)
    return 0 if decision.accepted else REFUSED
