"""What GitHub's Actions runner asks before and after each job: may this workflow file run on this host?

A failed job-started hook does not stop steps with `if: always()` nor `pre:` steps of actions. On a refusal the hook
therefore kills the worker that called it with all it started, then stops the runner's service: a service manager that
ends the unit's processes ends the hook as well, and whoever it has not come to by then would go on. Actions mode is
for trusted pushers even so; the polling daemon is the boundary (docs/guides/actions.md).
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import KakeyaError, PolicyRefusedError
from bridge.executor.removal import remove_tree
from bridge.system import ancestors, process

WORKER = "Runner.Worker"
STOP_TIMEOUT_S = 30.0
OWN_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
ASK_TIMEOUT_S = 180.0
WORKFLOW_MAX_BYTES = 512 * 1024
_WORKFLOW_REF = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)/(?P<path>\.github/workflows/[\w.-]+\.ya?ml)@(?P<ref>refs/[^\s]+)"
)
_SHA = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class AllowedWorkflow:
    """A workflow file the host's owner accepts: repository, path, digest of its bytes, and patterns of refs."""

    repository: str
    path: str
    sha256: str
    refs: tuple[str, ...]


@dataclass(frozen=True)
class JobFacts:
    """What the Actions runner says of the job it is about to start."""

    repository: str
    path: str
    ref: str
    commit: str


@dataclass(frozen=True)
class HookDecision:
    """Whether the job may start, and one line why."""

    accepted: bool
    why: str


def facts_of(environ: Mapping[str, str]) -> JobFacts:
    """Read the job from the variables GitHub sets for hooks.

    Raises:
        PolicyRefusedError: they are missing or malformed; a job nobody can identify does not run.
    """
    said, commit = environ.get("GITHUB_WORKFLOW_REF", ""), environ.get("GITHUB_WORKFLOW_SHA", "")
    match = _WORKFLOW_REF.fullmatch(said)
    if match is None or _SHA.fullmatch(commit) is None:
        raise PolicyRefusedError(
            f"the job names no workflow file: GITHUB_WORKFLOW_REF={said[:120]!r}, GITHUB_WORKFLOW_SHA={commit[:64]!r}",
            remedy="this hook is for jobs of workflow files; update the Actions runner if it is older than 2.303",
        )
    return JobFacts(match["repository"], match["path"], match["ref"], commit)


def decide(facts: JobFacts, allowed: Sequence[AllowedWorkflow], read: Callable[[JobFacts], bytes]) -> HookDecision:
    """Accept exactly the workflow files whose digest the policy lists for this repository, path and ref.

    Args:
        facts: what the Actions runner says.
        allowed: the policy's list.
        read: returns the file's bytes at the job's commit; they are compared, never parsed.
    """
    named = [entry for entry in allowed if (entry.repository, entry.path) == (facts.repository, facts.path)]
    if not named:
        return HookDecision(False, f"{facts.repository} {facts.path} is not in the policy's [[actions.workflows]]")
    digest = hashlib.sha256(read(facts)).hexdigest()
    listed = [entry for entry in named if entry.sha256 == digest]
    if not listed:
        return HookDecision(
            False, f"{facts.path} at {facts.commit[:12]} has sha256 {digest}, which the policy does not list"
        )
    if not any(fnmatch.fnmatchcase(facts.ref, pattern) for entry in listed for pattern in entry.refs):
        return HookDecision(False, f"{facts.path} may not run for {facts.ref}")
    return HookDecision(True, f"{facts.path} at {facts.commit[:12]} is listed for {facts.ref}")


def decided(
    environ: Mapping[str, str], allowed: Sequence[AllowedWorkflow], read: Callable[[JobFacts], bytes]
) -> HookDecision:
    """Decide about a job; whatever goes wrong on the way is a refusal."""
    try:
        return decide(facts_of(environ), allowed, read)
    except KakeyaError as error:
        return HookDecision(False, error.message)


def asked(environ: Mapping[str, str], program: str) -> HookDecision:
    """Let another program decide, one that may read what the Actions user may not; no answer is a refusal.

    Args:
        environ: what GitHub says of the job.
        program: absolute path; gets the job's workflow reference and commit as arguments, exits with 0 to accept.
    """
    words = [environ.get("GITHUB_WORKFLOW_REF", ""), environ.get("GITHUB_WORKFLOW_SHA", "")]
    try:
        done = process.run([program, *words], env=OWN_ENVIRONMENT, timeout_s=ASK_TIMEOUT_S)
    except KakeyaError as error:
        return HookDecision(False, f"nobody could be asked: {error.message}")
    said = "".join(char if char.isprintable() else " " for char in done.stderr.decode("utf-8", "replace"))
    return HookDecision(done.ok, said.strip()[-400:] or done.describe())


def started(decision: HookDecision, stop_command: Sequence[str]) -> HookDecision:
    """Act on a decision about the job that is about to start: a refusal ends the worker and stops the service."""
    if not decision.accepted:
        end_worker(stop_command)
    return decision


def end_worker(stop_command: Sequence[str]) -> int:
    """Kill the worker above us and all it started but us, then stop the Actions service; return how many were killed.

    The stop command gets nothing of the job's environment, which its sender may have filled.
    """
    worker = ancestors.ancestor_named(WORKER)
    killed = 0 if worker is None else ancestors.kill_tree(worker, spare=os.getpid())
    if stop_command:
        process.run(stop_command, env=OWN_ENVIRONMENT, timeout_s=STOP_TIMEOUT_S)
    return killed


def completed(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Empty the job's workspace and temporary folder, so that nothing waits there for the next job; return both.

    Raises:
        OSError: something could not be removed.
    """
    emptied = []
    for name in ("GITHUB_WORKSPACE", "RUNNER_TEMP"):
        folder = Path(environ.get(name, ""))
        if environ.get(name) and folder.is_absolute() and folder.is_dir() and not folder.is_symlink():
            for entry in folder.iterdir():
                if entry.is_symlink() or not entry.is_dir():
                    entry.unlink()
                elif not remove_tree(entry):
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(entry))
            emptied.append(folder)
    return tuple(emptied)
