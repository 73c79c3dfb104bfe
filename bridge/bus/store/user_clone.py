"""What is read of the user's own clone, which is never written.

Knows nothing about remotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.errors import UsageError
from bridge.system.git import run_in_work_tree


@dataclass(frozen=True)
class UserClone:
    """The parts of the user's clone that are read: its objects, its list of shallow commits, its index.

    Attributes:
        top: its work tree.
    """

    objects: Path
    shallow: Path
    index: Path
    top: Path

    @property
    def is_partial(self) -> bool:
        """Whether it was told to fetch some objects only when they are needed: git marks what it has instead."""
        return any((self.objects / "pack").glob("*.promisor"))


def read_clone(repository: Path) -> UserClone:
    """Return what is read of the user's clone, linked work trees included: git is asked where it is no plain clone.

    Raises:
        UsageError: it is no git repository.
    """
    names, own = ("objects", "shallow", "index"), repository / ".git"
    if (own / "HEAD").is_file() and (own / "objects").is_dir():
        return UserClone(top=repository, **{name: (own / name).resolve() for name in names})
    return UserClone(top=repository, **{name: _git_path(repository, name) for name in names})


def _git_path(repository: Path, name: str) -> Path:
    """Return where git keeps a file of a clone; asked for one at a time, as a folder's name may hold a line's end.

    Raises:
        UsageError: it is no git repository.
    """
    finished = run_in_work_tree(repository, ["rev-parse", "--git-path", name])
    if finished.exit_code != 0:
        raise UsageError(f"{repository} is no git repository")
    return (repository / finished.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")).resolve()
