"""Read one file of a repository at one commit, for the Actions job hook: its bytes are compared, never run.

A private repository needs a token that may read it and nothing else; why it is the owner's file and who may read that
file is decided in docs/adr/0006-actions-hook.md.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

from bridge.errors import GitError, RemoteError
from bridge.limits import GIT_WALL_S, MIB
from bridge.runner.actions.job_hook import WORKFLOW_MAX_BYTES, JobFacts
from bridge.system.gitobjects import parse_commit, parse_tree
from bridge.system.gitrepository import BareRepository, GitSettings
from bridge.system.remote_words import explain

_FETCH_MAX_BYTES = 64 * MIB
_TREE_MAX_BYTES = 4 * MIB


def reader(server: str, state: Path, token: str | None = None) -> Callable[[JobFacts], bytes]:
    """Return a function that reads the workflow file of a job from the server it came from.

    Args:
        server: URL of the hosting site, e.g. ``https://github.com``; or of a folder of repositories.
        state: where the hook keeps its own repository.
        token: may read the repositories; sent to `server` alone, never in an argument or a URL.
    """
    repository = BareRepository(state / "workflows.git", GitSettings(config=_authorization(server, token)))

    def read(facts: JobFacts) -> bytes:
        repository.create()
        asked = [
            "fetch",
            "--depth=1",
            "--no-tags",
            "--no-write-fetch-head",
            f"{server}/{facts.repository}",
            facts.commit,
        ]
        done = repository.run(asked, timeout_s=GIT_WALL_S, max_file_bytes=_FETCH_MAX_BYTES)
        if done.exit_code != 0 or done.timed_out:
            raise explain(done, f"fetch {facts.commit[:12]} of {facts.repository}")
        return _file(repository, facts)

    return read


def _authorization(server: str, token: str | None) -> tuple[tuple[str, str], ...]:
    if token is None:
        return ()
    basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    # Redirects would carry the header to wherever the server says.
    return ((f"http.{server}/.extraHeader", f"Authorization: Basic {basic}"), ("http.followRedirects", "false"))


def _file(repository: BareRepository, facts: JobFacts) -> bytes:
    *folders, name = facts.path.split("/")
    try:
        with repository.reader() as objects:
            oid = parse_commit(objects.read(facts.commit, "commit", MIB)).tree
            for folder in folders:
                oid = _entry(objects.read(oid, "tree", _TREE_MAX_BYTES), folder)
            return objects.read(_entry(objects.read(oid, "tree", _TREE_MAX_BYTES), name), "blob", WORKFLOW_MAX_BYTES)
    except GitError as error:
        raise RemoteError(f"{facts.path} at {facts.commit[:12]} cannot be read: {error.message}") from error


def _entry(tree: bytes, name: str) -> str:
    for entry in parse_tree(tree):
        if entry.name == name.encode():
            return entry.oid
    raise GitError(f"there is no {name}")
