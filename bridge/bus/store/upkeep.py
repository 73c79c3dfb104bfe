"""Keep a repository of ours small: pack what is many, delete what is old and leads nowhere.

Knows nothing about what its refs mean, but that some only spare another fetch.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from bridge.system.clock import SystemClock
from bridge.system.gitrepository import BareRepository

_LOOSE_MANY: Final = 2560
_PACKS_MANY: Final = 50  # each checked fetch keeps its objects in a pack of its own
_PRUNE_EVERY_S: Final = 24 * 3600.0


def tidy(repository: BareRepository) -> None:
    """Pack loose objects, or small packs, when there are many; nothing is deleted, referenced or not."""
    if sum(entry.name.endswith(".pack") for entry in os.scandir(repository.objects / "pack")) > _PACKS_MANY:
        repository.run(["repack", "-d", "-l", "--quiet", "--geometric=2"])
    sample = repository.objects / "17"  # one of 256 folders, which ids fill evenly
    if sample.is_dir() and sum(1 for _ in sample.iterdir()) > _LOOSE_MANY // 256:
        repository.run(["maintenance", "run", "--quiet", "--task=loose-objects"])
        repository.run(["prune-packed", "--quiet"])  # only what a pack holds now


def prune(repository: BareRepository, refs: str, older_than_s: float) -> None:
    """Delete refs below a folder that are so old, and what nothing leads to any more and is so old; once a day.

    What went is fetched again where it is needed again.
    """
    stamp, now_s = repository.path / "pruned", SystemClock().now().timestamp()
    is_new = not stamp.exists()
    if not is_new and now_s - stamp.stat().st_mtime < _PRUNE_EVERY_S:
        return
    stamp.touch()
    if is_new:
        return
    for path in (repository.path / refs).glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if now_s - path.stat().st_mtime > older_than_s:
                path.unlink()
    expiry = f"{int(older_than_s)}.seconds.ago"
    repository.run(["repack", "-A", "-d", "-l", "--quiet", f"--unpack-unreachable={expiry}"])
    repository.run(["prune", f"--expire={expiry}"])
