"""Find the user's git repository without running git.

Knows only where things lie: the work tree, the common directory shared by all worktrees. Reads two small files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.errors import UsageError


@dataclass(frozen=True)
class Repository:
    """A clone: its work tree's top folder, its git directory, and the one shared by all its worktrees.

    Of a bare one all three are its own folder.
    """

    top: Path
    git_dir: Path
    common_dir: Path

    def current_branch(self) -> str | None:
        """Return the branch HEAD is on, None when it is detached."""
        head = (self.git_dir / "HEAD").read_text(encoding="utf-8", errors="replace").strip()
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref: refs/heads/") else None


def find_repository(start: Path) -> Repository | None:
    """Return the repository around a folder, or None outside of one.

    A folder that looks like a bare repository counts only where no `.git` is around it: inside a work tree anybody may
    have committed one, with a configuration of their own.

    Raises:
        UsageError: a `.git` file points to nothing.
    """
    folders = (start.resolve(), *start.resolve().parents)
    for folder in folders:
        dot_git = folder / ".git"
        if dot_git.is_dir() and (dot_git / "HEAD").exists():
            return Repository(folder, dot_git, _common(dot_git))
        if dot_git.is_file():
            git_dir = _linked(dot_git)
            return Repository(folder, git_dir, _common(git_dir))
    bare = next((folder for folder in folders if _is_bare(folder)), None)
    return None if bare is None else Repository(bare, bare, bare)


def _is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def _linked(dot_git: Path) -> Path:
    """Follow a worktree's or submodule's `.git` file."""
    text = dot_git.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\r\n")
    target = (dot_git.parent / text.removeprefix("gitdir: ")).resolve()
    if not text.startswith("gitdir:") or not target.is_dir():
        raise UsageError(f"{dot_git} points to {text[:200]!r}, which is no git directory", remedy="git worktree repair")
    return target


def _common(git_dir: Path) -> Path:
    pointer = git_dir / "commondir"
    if not pointer.is_file():
        return git_dir
    return (git_dir / pointer.read_text(encoding="utf-8", errors="surrogateescape").rstrip("\n")).resolve()
