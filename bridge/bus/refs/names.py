"""Names of refs: request and cancel branches (see `bridge.request.branches`) and the refs a runner writes.

::

    <prefix>bus     <prefix>root     <prefix>claim/<id>     <prefix>log/<id>     <prefix>runner/<name>
    <prefix>archive/<name>/<day>

The prefix is ``refs/kakeya/``, or ``refs/heads/kakeya/`` on hosts whose protection rules cover only branches.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from collections.abc import Iterable
from typing import Final

from bridge.ids import is_id
from bridge.records.archive import DAY_PATTERN
from bridge.request.branches import HEADS, cancel_branch, run_id_of

DEFAULT_PREFIX: Final = "refs/kakeya/"
BRANCH_PREFIX: Final = "refs/heads/kakeya/"
PREFIXES: Final = (DEFAULT_PREFIX, BRANCH_PREFIX)
DEFAULT_PATTERNS: Final = ("mac-bridge/*", "AgentMemory/mac-bridge-*")
_RUNNER = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DAY = re.compile(DAY_PATTERN)
_GLOB = re.compile(r"[*?\[]")


def bus_ref(prefix: str) -> str:
    """Return the ref of the bus record."""
    return f"{prefix}bus"


def probe_ref(prefix: str) -> str:
    """Return the ref on which the maker of a bus tries what the remote allows; it is deleted again."""
    return f"{prefix}probe"


def root_ref(prefix: str) -> str:
    """Return the ref of the trust root."""
    return f"{prefix}root"


def claim_ref(prefix: str, run_id: str) -> str:
    """Return the ref of a run's claim."""
    return f"{prefix}claim/{run_id}"


def log_ref(prefix: str, run_id: str) -> str:
    """Return the ref of a run's log."""
    return f"{prefix}log/{run_id}"


def beacon_ref(prefix: str, runner: str) -> str:
    """Return the ref of a runner's sign of life."""
    return f"{prefix}runner/{runner}"


def archive_ref(prefix: str, runner: str, day: str) -> str:
    """Return the ref of what a runner archived of a day; with two empty names, how all of them begin."""
    return f"{prefix}archive/{runner}/{day}" if runner else f"{prefix}archive/"


def archive_of(prefix: str, ref: str) -> tuple[str, str] | None:
    """Return runner and day of an archive's ref, or None when the ref is something else."""
    head = f"{prefix}archive/"
    runner, _, day = ref.removeprefix(head).partition("/")
    is_archive = ref.startswith(head) and _RUNNER.fullmatch(runner) and _DAY.fullmatch(day)
    return (runner, day) if is_archive and _is_day(day) else None


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def runner_id_of(prefix: str, kind: str, ref: str) -> str | None:
    """Return the run id in a ``claim`` or ``log`` ref, or None when the ref is something else."""
    head = f"{prefix}{kind}/"
    tail = ref.removeprefix(head)
    return tail if ref.startswith(head) and is_id(tail) else None


def runner_name_of(prefix: str, ref: str) -> str | None:
    """Return the runner's name in a beacon ref, or None when the ref is something else."""
    head = f"{prefix}runner/"
    tail = ref.removeprefix(head)
    return tail if ref.startswith(head) and _RUNNER.fullmatch(tail) else None


def cancel_prefix(ref: str) -> str:
    """Return how the names of all cancel branches of a request branch begin."""
    run_id = run_id_of(ref) or ""
    head, _, _ = cancel_branch(ref).partition(run_id)
    return head + run_id


def accepts(patterns: Iterable[str], ref: str) -> bool:
    """Return whether a bus accepts requests on this branch; patterns are globs over branch names."""
    branch = ref.removeprefix(HEADS)
    return ref.startswith(HEADS) and any(fnmatch.fnmatchcase(branch, pattern) for pattern in patterns)


def listing_prefixes(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the ref prefixes that a listing of request and cancel branches needs; none covers another."""
    found = sorted({HEADS + _GLOB.split(pattern, maxsplit=1)[0] for pattern in patterns})
    return tuple(one for one in found if not any(one != other and one.startswith(other) for other in found))
