"""The command line that asks a question again, as words: what a request holds, in the words of `run`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from bridge.records.base import ParamValue
    from bridge.records.jobspec import JobSpec
    from bridge.records.request import Request


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./:-]*")  # what no untyped value or list looks like


def words_again(request: Request, spec: JobSpec | None) -> list[str] | None:
    """Return ``run PRESET …`` of the question of a request, without its profile.

    Args:
        request: as it was sent.
        spec: what its host made of it, None where that is not known.

    Returns:
        None where uncommitted changes were sent: nobody has them under a name.
    """
    if request.workload is not None and request.workload.dirty:
        return None
    from bridge.presets.installed import registry

    installed = request.preset in registry()
    # Its parameters have types where it is installed, or is an owner's workload, whose definition its host publishes.
    typed = installed or (spec is not None and spec.workload is not None)
    name, labels = request.runner.name, request.runner.labels
    words = ["run", request.preset if name is None or installed else f"{request.preset}@{name}"]
    for parameter, value in sorted(request.params.items()):
        words += ["-p", f"{parameter}={_text(value, typed=typed)}"]
    if request.workload is not None:
        words += ["--ref", request.workload.commit]
    if name is not None and installed:
        words += ["--runner", f"name:{name}"]
    if labels:
        words += ["--runner", f"{','.join(labels)},"]  # the last comma makes a label of a single word
    return [*words, "--unsandboxed"] if request.unsandboxed else words


def _text(value: ParamValue, *, typed: bool) -> str:
    """Return a value as it is typed; a text that would be read as something else without a type is quoted."""
    if isinstance(value, bool):
        return str(value).lower()
    if typed or not isinstance(value, str):
        return str(value)
    return value if _PLAIN.fullmatch(value) and value not in {"true", "false"} else f'"{value}"'
