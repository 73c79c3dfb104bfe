"""`kakeya-runner job-hook`: what the Actions runner asks before and after each job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bridge.cli.host.places import policy_of, state_of
from bridge.cli.screen.answer import Answer, Talk
from bridge.errors import KakeyaError, UsageError
from bridge.hosting.token import read_token_file
from bridge.runner.actions import job_hook
from bridge.runner.actions.workflow_file import reader
from bridge.runner.policy.hosting import ActionsPolicy

if TYPE_CHECKING:
    from bridge.cli.host.call import HostCall
    from bridge.cli.table.runner_options import HookDecideOptions, HookStartedOptions, PlaceOptions

REFUSED: Final = 7
SITE: Final = "https://github.com"


def completed(_call: HostCall[PlaceOptions]) -> Answer:
    """Empty what a job left."""
    return Answer(lines=[Talk("note", f"emptied {folder}") for folder in job_hook.completed(os.environ)])


def decide(call: HostCall[HookDecideOptions]) -> Answer:
    """Say whether a job may run, of the two words that GitHub gives: it runs as another user than the job."""
    environ = {"GITHUB_WORKFLOW_REF": call.options.workflow, "GITHUB_WORKFLOW_SHA": call.options.commit}
    return _answer(_decision(environ, _policy(call), state_of(call.options).root))


def started(call: HostCall[HookStartedOptions]) -> Answer:
    """Decide about a job before it starts, and stop the Actions service where it is refused."""
    ask, stop = call.options.ask, call.options.stop
    policy = ActionsPolicy() if ask else _policy(call)
    decision = job_hook.asked(os.environ, ask) if ask else _decision(os.environ, policy, state_of(call.options).root)
    job_hook.started(decision, [stop] if stop else policy.stop)
    return _answer(decision)


def _answer(decision: job_hook.HookDecision) -> Answer:
    word = "accepted" if decision.accepted else "refused"
    return Answer(lines=[Talk("note", f"{word}: {decision.why}")], exit_code=0 if decision.accepted else REFUSED)


def _policy(call: HostCall[PlaceOptions]) -> ActionsPolicy:
    try:
        return policy_of(call.options).actions
    except UsageError as error:  # without a policy nothing is allowed, and that must stop the worker too
        call.note(error.message)
        return ActionsPolicy()


def _decision(environ: Mapping[str, str], policy: ActionsPolicy, state: Path) -> job_hook.HookDecision:
    allowed = [job_hook.AllowedWorkflow(w.repository, w.path, w.sha256, w.refs) for w in policy.workflows]
    try:
        token = None if policy.token_file is None else read_token_file(Path(policy.token_file)).text
    except KakeyaError as error:
        return job_hook.HookDecision(False, error.message)
    server = policy.server or environ.get("GITHUB_SERVER_URL", SITE)
    return job_hook.decided(environ, allowed, reader(server, state, token))
