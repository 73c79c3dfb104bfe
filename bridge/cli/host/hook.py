"""`kakeya-runner job-hook`: what the Actions runner asks before and after each job."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from bridge.errors import KakeyaError, UsageError
from bridge.hosting.token import read_token_file
from bridge.runner.actions import job_hook
from bridge.runner.actions.workflow_file import reader
from bridge.runner.policy.hosting import ActionsPolicy

REFUSED = 7
SITE = "https://github.com"
Say = Callable[[str], None]


def answer(arguments: argparse.Namespace, actions: Callable[[], ActionsPolicy], state: Path, say: Say) -> int:
    """Answer one question of the Actions runner and return the exit code.

    Raises:
        UsageError: words are missing.
    """
    match arguments.action:
        case "digest":
            return _digest(arguments.words)
        case "completed":
            for folder in job_hook.completed(os.environ):
                say(f"emptied {folder}")
            return 0
        case "decide":
            environ = _facts(arguments.words)
            decision = _decision(environ, _policy(actions, say), state)
        case _:
            policy = ActionsPolicy() if arguments.ask else _policy(actions, say)
            stop = [arguments.stop] if arguments.stop else policy.stop
            if arguments.ask:
                decision = job_hook.asked(os.environ, arguments.ask)
            else:
                decision = _decision(os.environ, policy, state)
            job_hook.started(decision, stop)
    say(("accepted: " if decision.accepted else "refused: ") + decision.why)
    return 0 if decision.accepted else REFUSED


def _digest(words: list[str]) -> int:
    if len(words) != 1:
        raise UsageError("digest needs a file", remedy="kakeya-runner job-hook digest .github/workflows/NAME.yml")
    try:
        print(hashlib.sha256(Path(words[0]).read_bytes()).hexdigest())
    except OSError as error:
        raise UsageError(f"cannot read {words[0]}: {error.strerror}") from error
    return 0


def _facts(words: list[str]) -> Mapping[str, str]:
    """Return the job's variables from the two words of `decide`, which runs as another user than the job."""
    if len(words) != 2:
        raise UsageError("decide needs a workflow reference and a commit, as GitHub gives them to the hook")
    return {"GITHUB_WORKFLOW_REF": words[0], "GITHUB_WORKFLOW_SHA": words[1]}


def _policy(actions: Callable[[], ActionsPolicy], say: Say) -> ActionsPolicy:
    try:
        return actions()
    except UsageError as error:  # without a policy nothing is allowed, and that must stop the worker too
        say(error.message)
        return ActionsPolicy()


def _decision(environ: Mapping[str, str], policy: ActionsPolicy, state: Path) -> job_hook.HookDecision:
    allowed = [job_hook.AllowedWorkflow(w.repository, w.path, w.sha256, w.refs) for w in policy.workflows]
    try:
        token = None if policy.token_file is None else read_token_file(Path(policy.token_file)).text
    except KakeyaError as error:
        return job_hook.HookDecision(False, error.message)
    server = policy.server or environ.get("GITHUB_SERVER_URL", SITE)
    return job_hook.decided(environ, allowed, reader(server, state, token))
