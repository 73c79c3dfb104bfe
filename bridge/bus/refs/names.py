"""Names of refs: request and cancel branches (see `bridge.request.branches`) and the refs a runner writes.

::

    <prefix>bus     <prefix>root     <prefix>claim/<id>     <prefix>start/<id>     <prefix>log/<id>
    <prefix>runner/<name>     <prefix>archive/<name>/<day>

The prefix is ``refs/kakeya/``, or ``refs/heads/kakeya/`` on hosts whose protection rules cover only branches.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from collections.abc import Iterable
from typing import Final

from bridge.ids import DAY_PATTERN, is_id
from bridge.request.branches import HEADS, RESERVED_PRESET, cancel_branch, run_id_of

DEFAULT_PREFIX: Final = "refs/kakeya/"
BRANCH_PREFIX: Final = "refs/heads/kakeya/"
PREFIXES: Final = (DEFAULT_PREFIX, BRANCH_PREFIX)
_SINGLE: Final = ("bus", "root", "probe")
_FOLDERS: Final = ("claim", "start", "log", "runner", "archive")
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


def start_ref(prefix: str, run_id: str) -> str:
    """Return the ref of the claim that began a run."""
    return f"{prefix}start/{run_id}"


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
    """Return the run id in a ``claim``, ``start`` or ``log`` ref, or None when the ref is something else."""
    head = f"{prefix}{kind}/"
    tail = ref.removeprefix(head)
    return tail if ref.startswith(head) and is_id(tail) else None


def runner_name_of(prefix: str, ref: str) -> str | None:
    """Return the runner's name in a beacon ref, or None when the ref is something else."""
    head = f"{prefix}runner/"
    tail = ref.removeprefix(head)
    return tail if ref.startswith(head) and _RUNNER.fullmatch(tail) else None


def kept_out(prefix: str, ref: str) -> str | None:
    """Return which ref of ours, or which folder of them, cannot be made beside a ref; None: it is no obstacle.

    Not told of a ref below a claim, start, log or beacon, which has no name that one of those has.
    """
    kind, *rest = ref.removeprefix(prefix).split("/")
    if not rest:
        return f"{ref}/" if kind in _FOLDERS else None
    if kind in _SINGLE:
        return f"{prefix}{kind}"
    if kind != "archive":
        return None
    day = rest[1] if len(rest) > 1 else "2000-01-01"
    archive = archive_ref(prefix, rest[0], day) if rest[0] else ""
    if archive == ref or archive_of(prefix, archive) is None:
        return None
    return f"{ref}/" if len(rest) == 1 else archive


def cancel_prefix(ref: str) -> str:
    """Return how the names of all cancel branches of a request branch begin."""
    run_id = run_id_of(ref) or ""
    head, _, _ = cancel_branch(ref).partition(run_id)
    return head + run_id


def accepts(patterns: Iterable[str], ref: str) -> bool:
    """Return whether a bus accepts requests on this branch; patterns are globs over branch names."""
    branch = ref.removeprefix(HEADS)
    return ref.startswith(HEADS) and any(fnmatch.fnmatchcase(branch, pattern) for pattern in patterns)


def request_folders(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of request and cancel branches; a branch that is called as one of them keeps those out."""
    folders = set()
    for prefix in listing_prefixes(patterns):
        parts = prefix.split("/")
        folders |= {"/".join(parts[:depth]) for depth in range(HEADS.count("/") + 1, len(parts))}
    return tuple(
        sorted({*folders, *(f"{folder}/{RESERVED_PRESET}" for folder in folders if folder.endswith("/mac-bridge"))})
    )


def listing_prefixes(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the ref prefixes that a listing of request and cancel branches needs; none covers another."""
    heads = sorted({HEADS + _GLOB.split(pattern, maxsplit=1)[0] for pattern in patterns})
    return tuple(head for head in heads if not any(head != other and head.startswith(other) for other in heads))
