"""The environment of a command: what the job spec says, what the executor knows, nothing else.

Starts empty. Knows nothing of this process's own environment except the fallback PATH of the platform.
"""

from __future__ import annotations

from typing import Final

from bridge import strictjson
from bridge.executor.interface import RunDirectory
from bridge.executor.process.tree import MARKER_NAME
from bridge.records import JobSpec

PATH_DEFAULT: Final = "/usr/local/bin:/usr/bin:/bin"
LANG_DEFAULT: Final = "C.UTF-8"


def command_environment(spec: JobSpec, directory: RunDirectory, marker: str, pipe_fd: int) -> dict[str, str]:
    """Return the whole environment of the commands of a run.

    Args:
        spec: its variables come first; the facts of the run below cannot be overridden.
        directory: gives HOME, TMPDIR and KAKEYA_OUT.
        marker: unique to the run; recognises its processes.
        pipe_fd: number of the sample pipe's write end in the command.
    """
    return {
        "PATH": PATH_DEFAULT,
        "LANG": LANG_DEFAULT,
        **{variable.name: variable.value for variable in spec.environment},
        "PWD": str(directory.work),
        "HOME": str(directory.home),
        "TMPDIR": str(directory.tmp),
        "KAKEYA_RUN_ID": spec.id,
        "KAKEYA_REQUEST_DIGEST": spec.request_digest,
        "KAKEYA_PRESET": spec.preset,
        "KAKEYA_PARAMS": strictjson.encode(dict(spec.params)).decode(),
        "KAKEYA_PROFILE": spec.profile,
        "KAKEYA_OUT": str(directory.out),
        "KAKEYA_SAMPLE_PIPE": str(pipe_fd),
        MARKER_NAME: marker,
    }
