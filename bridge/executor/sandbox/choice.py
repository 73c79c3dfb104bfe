"""Choose what confines a run: nothing, or the sandbox of this platform.

A required sandbox that is not there is an error before anything starts. So is a run on a host that would have neither a
sandbox nor a user of its own: it could read the runner's key.
"""

from __future__ import annotations

import os
import sys

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.confinement import Confinement, Sandbox, plain
from bridge.executor.sandbox.user import job_uid
from bridge.records.jobspec import JobSpec
from bridge.records.network import describe_network
from bridge.records.run import SandboxApplied

_REMEDY_EMBEDDED = (
    "kakeya-runner doctor says what is missing; on your own machine, for code you trust: kakeya-mac run --unsandboxed"
)


def confine(spec: JobSpec, directory: RunDirectory, offered: SandboxApplied, *, apart: bool = False) -> Confinement:
    """Return what will confine a run.

    Args:
        spec: says what is wanted.
        directory: where it may write.
        offered: what this host's sandbox proved to be when it was tried.
        apart: whether this process is another user than the runner already.

    Raises:
        SandboxUnavailableError: the spec requires a sandbox, a user, a path or a device that this host cannot give.
    """
    mode = spec.sandbox.mode
    if mode == "off":
        reason = "asked for with --unsandboxed" if "unsandboxed" in spec.labels else "the job spec asks for none"
        return plain(spec, directory, reason)
    if offered.kind == "none":
        if mode == "required":
            raise SandboxUnavailableError(
                f"this run needs a sandbox and the host has none: {offered.reason}",
                remedy=_REMEDY_EMBEDDED if "embedded" in spec.labels else "kakeya-runner doctor",
            )
        if spec.sandbox.network not in (False, "host"):
            raise SandboxUnavailableError(
                f"this run reaches {describe_network(spec.sandbox.network)}, which only a sandbox holds it to, and the "
                f"host has none: {offered.reason}",
                remedy=_REMEDY_EMBEDDED if "embedded" in spec.labels else "kakeya-runner doctor",
            )
        if not apart and "embedded" not in spec.labels and job_uid(spec.sandbox.uid) == os.getuid():
            raise SandboxUnavailableError(
                f"the host has no sandbox ({offered.reason}) and no other user for its runs, so this one could read "
                "the runner's key",
                remedy="allow user namespaces and install bubblewrap, or start the runner as root: its runs get "
                "another user",
            )
        return plain(spec, directory, offered.reason or "the host has none")
    return enclosed(spec, directory, offered.kind).tried(offered.trial)


def enclosed(spec: JobSpec, directory: RunDirectory, kind: str = "") -> Sandbox:
    """Return this platform's sandbox around a run, whether or not it has been tried.

    Args:
        spec: what it may see.
        directory: where it may write.
        kind: ``landlock`` where that is what proved to hold; else the platform's first choice.

    Raises:
        SandboxUnavailableError: there is none, or it cannot give what the spec asks for.
    """
    if sys.platform == "darwin":
        from bridge.executor.sandbox import seatbelt

        return seatbelt.enclose(spec, directory)
    if kind == "landlock":
        from bridge.executor.sandbox import landlock

        return landlock.enclose(spec, directory)
    from bridge.executor.sandbox import bubblewrap

    return bubblewrap.enclose(spec, directory)
