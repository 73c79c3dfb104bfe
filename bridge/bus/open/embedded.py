"""The bus in the user's data directory: the default when nothing is configured.

One per installed environment, so that a request of one clone never runs with another's packages. Knows nothing about
who starts its runner.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from bridge.system.clock import Clock
from bridge.version import VERSION


def embedded_folder(data_dir: Path) -> Path:
    """Return the folder of this environment's embedded bus: its repository, state and logs."""
    key = f"{os.path.realpath(sys.prefix)}\n{VERSION}"
    return data_dir / "embedded" / hashlib.sha256(key.encode()).hexdigest()[:16]


def embedded_route(data_dir: Path) -> Path:
    """Return the path of this environment's embedded bus; it may not be there yet."""
    return embedded_folder(data_dir) / "bus.git"


def ensure_embedded(data_dir: Path, clock: Clock) -> Path:
    """Make the embedded bus unless it is there, readable by its user only; return its path."""
    from bridge.bus.open.create import ensure_repository  # here: most commands only ask for the folder

    path = embedded_route(data_dir)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.chmod(0o700)
    ensure_repository(path, clock)
    return path


def tidy_embedded(data_dir: Path) -> None:
    """Pack what is many in the embedded bus; slow at times, so when nothing waits for it."""
    from bridge.bus.store.upkeep import tidy
    from bridge.system.gitrepository import BareRepository

    tidy(BareRepository(embedded_route(data_dir)))
