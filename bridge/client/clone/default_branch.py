"""Read a file as the default branch of a remote has it: what was merged there, not what is checked out here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bridge.errors import GitError


def merged_file(top: Path, common: Path, name: str, chosen: str | None) -> tuple[bytes, str]:
    """Return a file of the default branch as this clone last saw it, and where it is; empty where there is none.

    Args:
        top: of the clone.
        common: its git directory, the one that its work trees share.
        name: of the file.
        chosen: the bus that the reader chose; a remote of that name counts before others.
    """
    if not _may_have_default_branches(common):
        return b"", ""
    from bridge.client.clone.configuration import file_at, remotes

    remote = _own_remote(chosen, list(remotes(top)))
    where = f"refs/remotes/{remote}/HEAD:{name}"
    try:
        return (file_at(top, where) if remote else b""), where
    except GitError:
        return b"", where


def _may_have_default_branches(common: Path) -> bool:
    """Return whether a remote's default branch may be known here: told by files, so that git need not be started."""
    if (common / "reftable").exists() or any((common / "refs" / "remotes").glob("**/HEAD")):
        return True
    packed = common / "packed-refs"
    return packed.exists() and b"/HEAD\n" in packed.read_bytes()


def _own_remote(chosen: str | None, remotes: Sequence[str]) -> str | None:
    """Return the remote whose default branch counts: a stranger's fork, added to look at it, pins nothing.

    It is the bus's where the reader chose that, else origin, else the only.
    """
    if chosen in remotes:
        return chosen
    if "origin" in remotes:
        return "origin"
    return remotes[0] if len(remotes) == 1 else None
