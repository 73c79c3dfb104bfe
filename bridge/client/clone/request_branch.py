"""Find a run's request branch in a plain clone, which knows no bus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.client.clone.git_door import git
from bridge.request.branches import HEADS, run_id_of

_REMOTES = "refs/remotes/"


@dataclass(frozen=True)
class RequestBranch:
    """A branch of this clone, its own or a remote's, and the run it belongs to."""

    name: str
    run_id: str


def find_request_branch(top: Path, text: str) -> RequestBranch | None:
    """Return the branch of the one run whose id begins or ends with a text, None when there is none or several."""
    wanted = text.lower()
    found: dict[str, RequestBranch] = {}
    for ref in git(top, "for-each-ref", "--format=%(refname)", HEADS, _REMOTES).splitlines():
        branch = ref.removeprefix(_REMOTES).partition("/")[2] if ref.startswith(_REMOTES) else ref.removeprefix(HEADS)
        run_id = run_id_of(HEADS + branch)
        if run_id is not None and (run_id.startswith(wanted) or run_id.endswith(wanted)):
            found.setdefault(run_id, RequestBranch(ref, run_id))
    return next(iter(found.values())) if len(found) == 1 else None
