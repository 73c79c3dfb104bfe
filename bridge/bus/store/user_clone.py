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
    names = ("objects", "shallow", "index")
    own = repository / ".git"
    if (own / "HEAD").is_file() and (own / "objects").is_dir():
        return UserClone(top=repository, **{name: (own / name).resolve() for name in names})
    finished = run_in_work_tree(repository, ["rev-parse", *(part for name in names for part in ("--git-path", name))])
    lines = finished.stdout.decode("utf-8", "surrogateescape").splitlines()
    if finished.exit_code != 0 or len(lines) != len(names):
        raise UsageError(f"{repository} is no git repository")
    paths = {name: (repository / line).resolve() for name, line in zip(names, lines, strict=True)}
    return UserClone(top=repository, **paths)
