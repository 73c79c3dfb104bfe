"""What git says of a clone where a command has no time for more: its remotes, a file of a ref, its version.

Configuration is git's own word, includes and conditions followed. Knows no trees and no work tree.
"""

from __future__ import annotations

from pathlib import Path

from bridge.errors import GitError
from bridge.system.git import last_words, run_in_work_tree


def git_version() -> str:
    """Return git's version.

    Raises:
        GitError: git is not installed.
    """
    return _ask(Path.cwd(), "version").decode("utf-8", "replace").removeprefix("git version ").strip()


def remotes(top: Path) -> dict[str, str]:
    """Return the push or fetch URL of each remote, as configured, by name."""
    urls: dict[str, str] = {}
    try:
        text = _ask(top, "config", "--get-regexp", r"^remote\..*\.(push)?url$").decode("utf-8", "replace")
    except GitError:
        return urls
    for line in text.splitlines():
        key, _, url = line.partition(" ")
        name = key.removeprefix("remote.").rsplit(".", 1)[0]
        if key.endswith(".pushurl") or name not in urls:
            urls[name] = url
    return urls


def file_at(top: Path, where: str) -> bytes:
    """Return a file, named as ``REVISION:PATH``.

    Raises:
        GitError: there is none.
    """
    return _ask(top, "cat-file", "blob", where)


def _ask(folder: Path, *arguments: str) -> bytes:
    finished = run_in_work_tree(folder, arguments)
    if finished.timed_out or finished.too_large or finished.exit_code != 0:
        why = "took too long" if finished.timed_out else f"exit code {finished.exit_code}"
        raise GitError(f"git {arguments[0]}: {why}: {last_words(finished.stderr)}")
    return finished.stdout
