"""Choose what confines a run: nothing, or the sandbox of this platform.

A required sandbox that is not there is an error before anything starts.
"""

from __future__ import annotations

import sys

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunDirectory
from bridge.executor.sandbox.confinement import Confinement, plain
from bridge.records import JobSpec, SandboxApplied


def confine(spec: JobSpec, directory: RunDirectory, offered: SandboxApplied) -> Confinement:
    """Return what will confine a run.

    Args:
        spec: says what is wanted.
        directory: where it may write.
        offered: what this host's sandbox proved to be when it was tried.

    Raises:
        SandboxUnavailableError: the spec requires a sandbox, a user, a path or a device that this host cannot give.
    """
    mode = spec.sandbox.mode
    if mode == "off":
        return plain(spec, directory, "the job spec asks for none")
    if offered.kind == "none":
        if mode == "required":
            raise SandboxUnavailableError(
                f"this run needs a sandbox and the host has none: {offered.reason}", remedy="kakeya-runner doctor"
            )
        return plain(spec, directory, offered.reason or "the host has none")
    return enclosed(spec, directory)


def enclosed(spec: JobSpec, directory: RunDirectory) -> Confinement:
    """Return this platform's sandbox around a run, whether or not it has been tried.

    Raises:
        SandboxUnavailableError: there is none, or it cannot give what the spec asks for.
    """
    if sys.platform == "darwin":
        from bridge.executor.sandbox.seatbelt import enclose
    else:
        from bridge.executor.sandbox.bubblewrap import enclose
    return enclose(spec, directory)
