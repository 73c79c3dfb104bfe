"""Clear what a trial left in the shared temporary folder because its runner was killed in the middle of it.

Only folders that are certainly ours: our name, our user, no link, and older than any trial takes.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from typing import Final

from bridge.system.clock import Clock

PREFIX: Final = "kakeya-sandbox-"
STALE_AFTER_S: Final = 3600.0
_NAME: Final = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")


def clear_stale(folder: Path, clock: Clock) -> int:
    """Remove the folders of trials that never ended; return how many went.

    What cannot be removed stays: a trial does not fail because an earlier one did.
    """
    if not shutil.rmtree.avoids_symlink_attacks:
        return 0
    try:
        names = [entry.name for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]
    except OSError:
        return 0
    old = [folder / name for name in names if _is_stale(folder / name, clock)]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return sum(not path.exists() for path in old)


def _is_stale(path: Path, clock: Clock) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    # The time of the last change of status: nobody can set that one back.
    return own and clock.now().timestamp() - found.st_ctime > STALE_AFTER_S
