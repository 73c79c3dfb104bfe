"""Names of request and cancel branches: the run id is in the name, so a listing shows the pending requests.

Two shapes, told apart by what follows ``mac-bridge``::

    mac-bridge/<preset>-<id>-<key>                     cancel: mac-bridge/cancel/<id>-<key>
    <space>/mac-bridge-<preset>-<id>-<key><suffix>     cancel: <space>/mac-bridge-cancel-<id>-<key><suffix>

The key is the beginning of the request's idempotency key, so that the same question is found without being read. The
second shape is for agents that may push only inside a namespace of their own, often with a fixed suffix.
Knows nothing about remotes; which patterns a bus accepts is in its record.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.errors import UsageError
from bridge.ids import ID_PATTERN, is_id

HEADS: Final = "refs/heads/"
DEFAULT_TEMPLATE: Final = "mac-bridge/{preset}-{id}"
KEY_CHARS: Final = 12
RESERVED_PRESET: Final = "cancel"

_PRESET = r"[a-z0-9][a-z0-9._-]{0,62}"
_SUFFIX = r"[A-Za-z0-9._-]{0,64}"
_SPACE = r"(?:[A-Za-z0-9._-]{1,64}/){0,4}"
_REQUEST = re.compile(rf"refs/heads/({_SPACE}mac-bridge[/-])({_PRESET})-({ID_PATTERN})({_SUFFIX})")
_CANCEL = re.compile(rf"refs/heads/{_SPACE}(?:mac-bridge/cancel/|mac-bridge-cancel-)({ID_PATTERN}){_SUFFIX}")
# git-check-ref-format(1): what the patterns above would still let through.
_FORBIDDEN = re.compile(r"\.\.|/\.|\.lock(?:/|$)|\.$|//")


def request_branch(template: str, preset: str, run_id: str, key: str = "") -> str:
    """Return the full ref name of a request branch.

    The beginning of the request's key is the tail of the id's part, so that a request is found by its name.

    Args:
        template: a branch name with ``{preset}`` and ``{id}``, e.g. ``claude/mac-bridge-{preset}-{id}-4f2a``.
        preset: a preset name.
        run_id: a run id.
        key: the request's idempotency key; empty for none.

    Raises:
        UsageError: the template does not give a request branch from which the same id can be read back.
    """
    ref = HEADS + template.replace("{preset}", preset).replace("{id}", _id_part(run_id, key))
    match = _REQUEST.fullmatch(ref)
    well_formed = template.count("{preset}") == 1 and template.count("{id}") == 1 and not _FORBIDDEN.search(ref)
    if not well_formed or match is None or match[3] != run_id or match[2] != preset or not is_id(run_id):
        raise UsageError(
            f"branch template {template!r} gives {ref!r}; expected e.g. {DEFAULT_TEMPLATE!r} or "
            "'claude/mac-bridge-{preset}-{id}-suffix'",
            remedy="set branch_template in kakeya.toml",
        )
    if preset == RESERVED_PRESET:
        raise UsageError(f"the preset name {RESERVED_PRESET!r} is reserved for cancel branches")
    return ref


def may_have_key(ref: str, preset: str, key: str) -> bool:
    """Return whether a request branch is named as one of this preset with this key; only its request can prove it."""
    run_id = run_id_of(ref)
    return run_id is not None and f"{preset}-{_id_part(run_id, key)}" in ref


def _id_part(run_id: str, key: str) -> str:
    return f"{run_id}-{key[:KEY_CHARS]}" if key else run_id


def run_id_of(ref: str) -> str | None:
    """Return the run id in the full name of a request branch, or None when it is no request branch."""
    match = _REQUEST.fullmatch(ref)
    if match is None or match[2] == RESERVED_PRESET or _FORBIDDEN.search(ref):
        return None
    return match[3]


def cancel_branch(ref: str, mark: str = "") -> str:
    """Return the full name of a cancel branch that belongs to a request branch.

    Args:
        ref: full name of the request branch.
        mark: letters and digits that make it another one: an unsigned cancel cannot occupy the name of a signed one.

    Raises:
        UsageError: the ref is no request branch.
    """
    match = _REQUEST.fullmatch(ref)
    if match is None or run_id_of(ref) is None:
        raise UsageError(f"{ref!r} is no request branch")
    space, _preset, run_id, suffix = match.groups()
    return f"{HEADS}{space}cancel{space[-1]}{run_id}{mark and '-' + mark}{suffix}"


def cancelled_id_of(ref: str) -> str | None:
    """Return the run id that a cancel branch asks to end, or None when it is no cancel branch."""
    match = _CANCEL.fullmatch(ref)
    return None if match is None or _FORBIDDEN.search(ref) else match[1]
