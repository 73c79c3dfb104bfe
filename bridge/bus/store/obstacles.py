"""Find the ref that keeps another from being made: git allows no ref beside a folder of its name.

Knows nothing about what refs mean.
"""

from __future__ import annotations

import shlex
from typing import Final

from bridge.bus.store.interface import RefStore
from bridge.errors import RemoteError
from bridge.system.git import last_words

NAME_MAX_CHARS: Final = 200


def obstacle_of(store: RefStore, ref: str) -> str | None:
    """Return a ref that has the name of one of this ref's folders, or is below it; None where there is none.

    Raises:
        RemoteError: the remote did not answer.
    """
    folder = ref.rpartition("/")[0]
    while "/" in folder and folder != "refs/heads":
        listed = sorted(store.list([folder]).refs)
        obstacle = next((name for name in listed if name == folder or name.startswith(f"{ref}/")), None)
        if obstacle is not None or any(name.startswith(f"{folder}/") for name in listed):
            return obstacle  # a folder with something in it stands in others that are folders, too
        folder = folder.rpartition("/")[0]
    return None


def refuse_beside(store: RefStore, ref: str, what: str) -> None:
    """Name the ref that is in the way of another, if there is one, and what deletes it.

    Args:
        store: the remote.
        ref: could not be made.
        what: says so.

    Raises:
        RemoteError: there is one.
    """
    try:
        obstacle = obstacle_of(store, ref)
    except RemoteError:  # what the remote said before is left
        return
    if obstacle is None:
        return
    by_hand = deletion_of(store, obstacle)
    remedy = f"if nobody needs that branch: {by_hand}"
    if not obstacle.startswith("refs/heads/"):
        remedy = f"kakeya-runner bus repair; where there is no bus yet: {by_hand}"
    name = last_words(obstacle[:NAME_MAX_CHARS])
    raise RemoteError(f"{what}: {name} is in its way, as git allows no ref beside a folder of its name", remedy=remedy)


def deletion_of(store: RefStore, ref: str) -> str:
    """Return the command with which a person deletes a ref; a name that is not fit to be shown is left out."""
    route = shlex.quote(store.route)
    if not ref.isprintable() or len(ref) > NAME_MAX_CHARS:
        return f"git push {route} :REF, with REF as git ls-remote {route} has it"
    return f"git push {route} {shlex.quote(f':{ref}')}"
