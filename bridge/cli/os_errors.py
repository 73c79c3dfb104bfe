"""Turn what the operating system refuses into one clear message, the same for both programs."""

from __future__ import annotations

import errno
from typing import Final

from bridge.errors import InfrastructureError, KakeyaError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FREE: Final = (
    "free some space: the data and state folders, TMPDIR and, for a requester, the clone's .git are written to"
)


def told(error: OSError | KakeyaError, remedy: str) -> KakeyaError:
    """Return an error with a message for people.

    Args:
        error: what was raised; one of ours is returned as it is.
        remedy: what to do next where the error itself does not say.
    """
    if isinstance(error, KakeyaError):
        return error
    where = f"{error.filename}: " if error.filename else ""
    return InfrastructureError(f"{where}{error.strerror or error}", remedy=_FREE if error.errno in _FULL else remedy)
