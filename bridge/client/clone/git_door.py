"""Read the user's own repository with git; nothing here writes to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bridge.bus.tree import Tree
from bridge.errors import GitError, IntegrityError, UsageError
from bridge.limits import RESULT_MAX_BYTES, RESULT_MAX_FILES
from bridge.request.branches import HEADS, run_id_of
from bridge.system.git import last_words, run_in_work_tree

RESULT_FOLDER = ".mac-bridge/result"
_REMOTES = "refs/remotes/"


@dataclass(frozen=True)
class CommitTree:
    """A commit of the user's repository and its tree."""

    commit: str
    tree: str


@dataclass(frozen=True)
class DirtyState:
    """Uncommitted changes: of tracked files (paths relative to the top), and how many files are not tracked."""

    changed: tuple[str, ...]
    untracked: int


@dataclass(frozen=True)
class RequestBranch:
    """A branch of this clone, its own or a remote's, and the run it belongs to."""

    name: str
    run_id: str


def git(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """Return what git prints.

    Raises:
        GitError: it failed; the message ends in git's own words.
    """
    return _bytes(folder, *arguments, environment=environment).decode("utf-8", "replace")


def git_version() -> str:
    """Return git's version.

    Raises:
        GitError: git is not installed.
    """
    return git(Path.cwd(), "version").removeprefix("git version ").strip()


def commit_of(top: Path, revision: str) -> CommitTree:
    """Return the commit a revision names.

    Raises:
        UsageError: it names none.
    """
    if revision.startswith("-"):
        raise UsageError(f"got revision {revision[:60]!r}; a revision does not begin with a dash")
    try:
        commit = git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
        return CommitTree(commit, git(top, "rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}").strip())
    except GitError as error:
        raise UsageError(f"{revision!r} names no commit here", remedy="commit first, or give another --ref") from error


def dirty_state(top: Path) -> DirtyState:
    """Return what differs from HEAD; asks without taking the index lock."""
    entries = _bytes(top, "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--ignore-submodules=all")
    changed: list[str] = []
    untracked = 0
    pieces = iter(entries.decode("utf-8", "surrogateescape").split("\0"))
    for piece in pieces:
        if not piece:
            continue
        if piece.startswith("??"):
            untracked += 1
            continue
        changed.append(piece[3:])
        if piece[0] in "RC":
            next(pieces, None)  # the old name of a rename or copy
    return DirtyState(tuple(changed), untracked)


def remotes(top: Path) -> dict[str, str]:
    """Return the push or fetch URL of each remote, as configured, by name."""
    found: dict[str, str] = {}
    try:
        text = git(top, "config", "--get-regexp", r"^remote\..*\.(push)?url$")
    except GitError:
        return found
    for line in text.splitlines():
        key, _, url = line.partition(" ")
        name = key.removeprefix("remote.").rsplit(".", 1)[0]
        if key.endswith(".pushurl") or name not in found:
            found[name] = url
    return found


def read_branch_result(top: Path, branch: str) -> Tree:
    """Return the result tree on a request branch of a plain clone.

    Raises:
        UsageError: no such branch, or no result on it.
        IntegrityError: the tree breaks its bounds or holds what is no regular file.
    """
    commit = _branch_commit(top, branch)
    listing = _bytes(top, "ls-tree", "-r", "-z", "-l", commit, f"{RESULT_FOLDER}/")
    entries = [entry for entry in listing.split(b"\0") if entry]
    if not entries:
        raise UsageError(f"{branch} carries no result yet", remedy="git fetch, or kakeya-mac attach ID")
    files: dict[str, bytes] = {}
    total = 0
    for entry in entries:
        head, _, name = entry.partition(b"\t")
        mode, kind, oid, size = head.decode("ascii", "replace").split()
        path = name.decode("utf-8", "replace").removeprefix(f"{RESULT_FOLDER}/")
        if kind != "blob" or mode not in {"100644", "100755"}:
            raise IntegrityError(f"{path} is no regular file (mode {mode})")
        total += int(size)
        if len(files) >= RESULT_MAX_FILES or total > RESULT_MAX_BYTES:
            raise IntegrityError(
                f"the result on {branch} has more than {RESULT_MAX_FILES} files or {RESULT_MAX_BYTES} bytes"
            )
        files[path] = _bytes(top, "cat-file", "blob", oid)
    return Tree(files)


def find_request_branch(top: Path, text: str) -> RequestBranch | None:
    """Return the branch of the one run whose id begins or ends with a text, None when there is none or several."""
    wanted = text.lower()
    found: dict[str, RequestBranch] = {}
    for ref in git(top, "for-each-ref", "--format=%(refname)", HEADS, _REMOTES).splitlines():
        branch = ref.removeprefix(_REMOTES).partition("/")[2] if ref.startswith(_REMOTES) else ref.removeprefix(HEADS)
        run_id = run_id_of(HEADS + branch)
        if run_id is not None and (run_id.startswith(wanted) or run_id.endswith(wanted)):
            found.setdefault(run_id, RequestBranch(ref, run_id))
    return next(iter(found.values())) if len(found) == 1 else None


def blob(top: Path, tree: str, path: str) -> bytes:
    """Return a file of a tree.

    Raises:
        GitError: there is none.
    """
    return _bytes(top, "cat-file", "blob", f"{tree}:{path}")


def _branch_commit(top: Path, branch: str) -> str:
    names = [branch, *(f"refs/remotes/{remote}/{branch}" for remote in remotes(top))]
    for name in names:
        try:
            return commit_of(top, name).commit
        except UsageError:
            continue
    known = remotes(top)
    remote = next((one for one in known if branch.startswith(f"{one}/")), next(iter(known), "REMOTE"))
    namespace = branch.removeprefix(f"{remote}/").rpartition("/")[0]
    refs = f"{namespace}/*" if namespace else branch
    raise UsageError(
        f"there is no branch {branch!r} in this clone",
        remedy=f"git fetch {remote} 'refs/heads/{refs}:refs/remotes/{remote}/{refs}'",
    )


def _bytes(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> bytes:
    finished = run_in_work_tree(folder, arguments, environment=environment)
    if finished.timed_out or finished.too_large or finished.exit_code != 0:
        why = "took too long" if finished.timed_out else f"exit code {finished.exit_code}"
        raise GitError(f"git {arguments[0]}: {why}: {last_words(finished.stderr)}")
    return finished.stdout
