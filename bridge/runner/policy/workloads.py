"""The owner's own programs: the list of folders that were allowed, and the presets that they offer.

The list has one absolute folder a line. Only `kakeya-runner workload` writes it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from bridge.errors import UsageError
from bridge.presets.model import Preset
from bridge.presets.workloads import WorkloadError, WorkloadFolder, problems, read_folder
from bridge.runner.policy.rights import file_problems
from bridge.system.durable import folder_in_turn, write_atomically


def allowed(listing: Path) -> tuple[Path, ...]:
    """Return the folders of a list, none where there is no list.

    Raises:
        UsageError: others may change the list, or a line is no absolute path.
    """
    if not listing.exists():
        return ()
    wrong = file_problems(listing, private=False)
    if wrong:
        repair = (
            f"chmod 600 {shlex.quote(str(listing))}"
            if listing.is_file()
            else f"move {listing} away: a list of folders belongs there"
        )
        raise UsageError(f"list of workloads {listing}: {wrong[0]}", remedy=repair)
    lines = [line.strip() for line in listing.read_text("utf-8").splitlines()]
    folders = [Path(line) for line in lines if line and not line.startswith("#")]
    for folder in folders:
        if not folder.is_absolute():
            raise UsageError(f"list of workloads {listing}: {folder} is no absolute path", remedy="take the line out")
    return tuple(dict.fromkeys(folders))


def write_list(listing: Path, folders: Iterable[Path]) -> None:
    """Write the list, readable and writable by its owner."""
    listing.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(listing, "".join(f"{folder}\n" for folder in folders).encode())


def change_list(listing: Path, change: Callable[[tuple[Path, ...]], Iterable[Path]]) -> None:
    """Write what becomes of the list; one command at a time changes it, so that none loses another's.

    Raises:
        UsageError: others may change the list, or a line is no absolute path.
    """
    with folder_in_turn(listing.parent):
        write_list(listing, change(allowed(listing)))


def checked(folder: Path, interpreter: str, others: Iterable[str] = ()) -> WorkloadFolder:
    """Return the workload of a folder in which nothing is wrong.

    Args:
        folder: absolute.
        interpreter: runs its scripts where the file names no program for that.
        others: names of presets that are there already.

    Raises:
        WorkloadError: its first mistake, with what to do about it.
    """
    for check in problems(folder, interpreter, others):
        if check.level == "fail":
            raise WorkloadError(f"workload {folder}, {check.name}: {check.text}", remedy=check.remedy)
    return read_folder(folder, interpreter)


def offered(listing: Path, interpreter: str, others: Iterable[str]) -> dict[str, Preset]:
    """Return the presets of every allowed workload by name.

    Raises:
        UsageError: the list or a workload has a mistake.
    """
    found: dict[str, Preset] = {}
    for folder in allowed(listing):
        found.update(checked(folder, interpreter, (*others, *found)).presets)
    return found
