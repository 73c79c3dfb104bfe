"""Say before pushing that the host's job hook will not accept the workflow files that go along.

A refused workflow stops the host's Actions service, so a requester should know before. What a host accepts is in its
beacon; the digest is the sha256 of the file's bytes.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterator

from bridge.client.connection.branches import template_for
from bridge.client.connection.session import BusSession
from bridge.errors import GitError
from bridge.records.bus import AcceptedWorkflow
from bridge.records.request import Workload
from bridge.request import request_branch


def warnings(session: BusSession, workload: Workload | None, preset: str) -> Iterator[str]:
    """Yield what the host would refuse about the workflow files of a workload; nothing on a bus Actions does not wake.

    Args:
        session: the bus; its beacons say what is accepted.
        workload: the code that is sent along.
        preset: it is part of the branch's name, and that of what the host accepts.
    """
    repository = session.settings.repository
    if session.record.wake != "actions" or workload is None or repository is None:
        return
    accepted = [workflow for _, beacon in session.bus.read_beacons() for workflow in beacon.workflows]
    if not accepted:
        yield "no host of this bus has said which workflow files it accepts (kakeya-runner once, on the host, says it)"
        return
    ref = request_branch(template_for(session), preset, "0" * 26)
    any_file = False
    for path in sorted({workflow.path for workflow in accepted}):
        data = _file(session, workload, path)
        if data is None:
            continue
        any_file = True
        digest = hashlib.sha256(data).hexdigest()
        if not any(_fits(workflow, path, digest, ref) for workflow in accepted):
            yield (
                f"{path} (sha256 {digest[:12]}) is no version that a host accepts on this branch: it will refuse the "
                "job and stop its Actions service; send a commit with the accepted file (--ref)"
            )
    if not any_file:
        paths = ", ".join(sorted({workflow.path for workflow in accepted}))
        yield f"the code that is sent has none of {paths}: no workflow of it will wake the host"


def _fits(workflow: AcceptedWorkflow, path: str, digest: str, ref: str) -> bool:
    return (workflow.path, workflow.sha256) == (path, digest) and any(
        fnmatch.fnmatchcase(ref, p) for p in workflow.refs
    )


def _file(session: BusSession, workload: Workload, path: str) -> bytes | None:
    """Return a file of what is sent: of the commit, or of the work tree when that is sent as it is."""
    repository = session.settings.repository
    assert repository is not None  # noqa: S101 - asked for by the only caller
    if workload.dirty:
        file = repository.top / path
        return file.read_bytes() if file.is_file() and not file.is_symlink() else None
    from bridge.client.clone import git_door

    try:
        return git_door.blob(repository.top, workload.commit, path)
    except GitError:
        return None
