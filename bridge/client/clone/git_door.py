"""Read the user's own clone with GitPython: its work tree's state, its branches, results on them; nothing is written.

Imported where it is needed only: it takes longer to load than a short command takes. What strangers pushed is read
elsewhere.
"""

from __future__ import annotations

import configparser
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from git import Blob, Commit, Git, Repo
from git import Tree as GitTree
from git.exc import BadName, GitCommandError, InvalidGitRepositoryError, NoSuchPathError
from git.exc import GitError as GitPythonError

from bridge.bus.store.route import check_owner
from bridge.bus.tree import Tree
from bridge.client.clone.configuration import remotes
from bridge.errors import GitError, IntegrityError, UsageError
from bridge.limits import GIT_LOCAL_WALL_S, RESULT_MAX_BYTES, RESULT_MAX_FILES
from bridge.request.branches import HEADS, run_id_of
from bridge.system.git import last_words

RESULT_FOLDER: Final = ".mac-bridge/result"
_REMOTES: Final = "refs/remotes/"
_NAMING: Final = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_NAMESPACE", "GIT_PREFIX",
)  # fmt: skip
_NAMED: Final = threading.Lock()
_OFF: Final = (("core.hooksPath", os.devnull), ("core.fsmonitor", "false"), ("maintenance.auto", "false"))


@dataclass(frozen=True)
class DirtyState:
    """Uncommitted changes of tracked files (paths relative to the top); how many are not tracked, or not merged yet.

    Attributes:
        has_work_tree: whether there is one; a bare repository has none.
    """

    changed: tuple[str, ...]
    untracked: int
    unmerged: int = 0
    has_work_tree: bool = True


@dataclass(frozen=True)
class RequestBranch:
    """A branch of this clone, its own or a remote's, and the run it belongs to."""

    name: str
    run_id: str


class _Git(Git):
    """Git in just this folder: GitPython puts values of variables in the place of what looks like ``$NAME`` in it."""

    def __init__(self, working_dir: str | os.PathLike[str] | None = None) -> None:
        super().__init__(working_dir)
        self._working_dir = working_dir


class _Repo(Repo):
    GitCommandWrapperType = _Git


def dirty_state(top: Path) -> DirtyState:
    """Return what differs from HEAD; asks without taking the index lock.

    Raises:
        GitError: git failed.
    """
    with _opened(top) as repo:
        if repo.bare:
            return DirtyState((), 0, has_work_tree=False)
        head = _commit_of(repo, "HEAD")  # GitPython's own look finds none beside a ref whose name is no UTF-8
        changed = _differing(repo) | (set() if head is None else _differing(repo, "--cached", "HEAD"))
        untracked: str = repo.git.ls_files("--others", "--exclude-standard", "-z")
        unmerged = {line.partition("\t")[2] for line in _lines(repo.git.ls_files("--unmerged"))}
        return DirtyState(tuple(sorted(changed)), untracked.count("\0"), len(unmerged))


def read_branch_result(top: Path, branch: str) -> Tree:
    """Return the result tree on a request branch of a plain clone.

    Raises:
        UsageError: no such branch, or no result on it.
        IntegrityError: the tree breaks its bounds or holds what is no regular file.
    """
    with _opened(top) as repo:
        try:
            folder = _branch_commit(repo, top, branch).tree / RESULT_FOLDER
        except KeyError:
            folder = None
        if not isinstance(folder, GitTree):
            raise UsageError(f"{branch} carries no result yet", remedy="git fetch, or kakeya-mac attach ID")
        files: dict[str, bytes] = {}
        total = 0
        for entry in folder.traverse():
            if isinstance(entry, GitTree):
                continue
            name = str(getattr(entry, "path", "")).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            path = name.removeprefix(f"{RESULT_FOLDER}/")
            if not isinstance(entry, Blob) or entry.mode not in {entry.file_mode, entry.executable_mode}:
                raise IntegrityError(f"{path} is no regular file (mode {getattr(entry, 'mode', 0):o})")
            total += entry.size
            if len(files) >= RESULT_MAX_FILES or total > RESULT_MAX_BYTES:
                raise IntegrityError(
                    f"the result on {branch} has more than {RESULT_MAX_FILES} files or {RESULT_MAX_BYTES} bytes"
                )
            files[path] = entry.data_stream.read()
    return Tree(files)


def find_request_branch(top: Path, text: str) -> RequestBranch | None:
    """Return the branch of the one run whose id begins or ends with a text, None when there is none or several.

    Raises:
        GitError: git failed.
    """
    part = text.lower()
    branches: dict[str, RequestBranch] = {}
    with _opened(top) as repo:
        refs = _lines(repo.git.for_each_ref("--format=%(refname)", HEADS, _REMOTES))
    for ref in refs:
        branch = ref.removeprefix(_REMOTES).partition("/")[2] if ref.startswith(_REMOTES) else ref.removeprefix(HEADS)
        run_id = run_id_of(HEADS + branch)
        if run_id is not None and (run_id.startswith(part) or run_id.endswith(part)):
            branches.setdefault(run_id, RequestBranch(ref, run_id))
    return next(iter(branches.values())) if len(branches) == 1 else None


def blob(top: Path, commit: str, path: str) -> bytes:
    """Return a file of a commit.

    Raises:
        GitError: there is none.
    """
    with _opened(top) as repo:
        try:
            data: bytes = (repo.commit(commit).tree / path).data_stream.read()
        except KeyError as error:
            raise GitError(f"there is no {path} in commit {commit[:12]}") from error
    return data


@contextmanager
def _opened(top: Path) -> Iterator[Repo]:
    """Lend the clone with hooks, file monitor and optional locks off; a call that fails is a `GitError`."""
    try:
        with _unnamed(), _Repo(top, expand_vars=False) as repo, repo.git.custom_environment(**_quiet()):
            yield repo
    except GitCommandError as error:
        check_owner(top)
        raise GitError(f"git failed in {top}: {last_words(str(error.stderr))}") from error
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise UsageError(f"{top} is no git repository") from error
    except (GitPythonError, configparser.Error) as error:
        raise GitError(f"{top} cannot be read: {error}") from error


@contextmanager
def _unnamed() -> Iterator[None]:
    """Take away what names another clone or index, as git does for its hooks and aliases; GitPython goes by it."""
    if not any(name in os.environ for name in _NAMING):
        yield
        return
    with _NAMED:
        taken = {name: os.environ.pop(name) for name in _NAMING if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(taken)


def _quiet() -> dict[str, str]:
    """Return variables with what `_OFF` turns off, after the configuration that the user's own variables hold."""
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    variables = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_COUNT": str(first + len(_OFF))}
    for number, (key, value) in enumerate(_OFF, first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def _commit_of(repo: Repo, revision: str) -> Commit | None:
    """Return the commit that a revision names, as git itself reads revisions."""
    try:
        oid = repo.git.rev_parse(
            "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", kill_after_timeout=GIT_LOCAL_WALL_S
        )
        return repo.commit(oid)
    except (GitCommandError, BadName, ValueError):
        return None


def _differing(repo: Repo, *between: str) -> set[str]:
    """Return the paths that differ, of a renamed file the new one; GitPython's own lists end at names of no UTF-8."""
    names: str = repo.git.diff("--name-only", "-z", "-M", "--no-ext-diff", "--ignore-submodules=all", *between, "--")
    return {name for name in names.split("\0") if name}


def _branch_commit(repo: Repo, top: Path, branch: str) -> Commit:
    urls = remotes(top)
    for name in (branch, *(f"{_REMOTES}{remote}/{branch}" for remote in urls)):
        commit = None if name.startswith("-") else _commit_of(repo, name)
        if commit is not None:
            return commit
    remote = next((name for name in urls if branch.startswith(f"{name}/")), next(iter(urls), "REMOTE"))
    namespace = branch.removeprefix(f"{remote}/").rpartition("/")[0]
    refs = f"{namespace}/*" if namespace else branch
    raise UsageError(
        f"there is no branch {branch!r} in this clone",
        remedy=f"git fetch {remote} 'refs/heads/{refs}:refs/remotes/{remote}/{refs}'",
    )


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]
