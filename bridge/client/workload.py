"""The code that is sent along: a commit's tree, or the work tree as it is, for presets that test the request's code."""

from __future__ import annotations

from collections.abc import Callable

from bridge.client import gitdoor
from bridge.client.repository import Repository
from bridge.client.session import Session
from bridge.errors import UsageError
from bridge.presets import Preset
from bridge.records import Workload


def choose_workload(
    session: Session, preset: Preset, *, ref: str | None, dirty: bool, say: Callable[[str, str], None]
) -> Workload | None:
    """Return the workload a request needs, None for host code on a bus that takes bare manifests.

    Args:
        session: the bus decides whether every request carries a tree.
        preset: whose code it runs.
        ref: the commit to send, None for HEAD.
        dirty: whether uncommitted changes of tracked files are sent too.
        say: gets a label and a line for people.

    Raises:
        UsageError: code is needed and there is none, or --dirty and --ref contradict each other.
    """
    needed = preset.code == "request"
    if not needed and session.record.request_form == "manifest":
        if dirty or ref is not None:
            raise UsageError(f"preset {preset.name!r} runs the host's code; --dirty and --ref have no meaning for it")
        return None
    repository = session.settings.repository
    if repository is None:
        raise UsageError(f"preset {preset.name!r} needs code to send", remedy="run it inside a git clone")
    if dirty and ref is not None:
        raise UsageError("--dirty sends the work tree and --ref another commit; give one of them")
    head = gitdoor.commit_of(repository.top, ref or "HEAD")
    tree, is_dirty = head.tree, False
    if ref is None:
        tree, is_dirty = _with_changes(session, repository, head.tree, send=dirty, say=say)
    return Workload(commit=head.commit, tree=tree, origin=gitdoor.origin_url(repository.top), dirty=is_dirty)


def _with_changes(
    session: Session, repository: Repository, tree: str, *, send: bool, say: Callable[[str, str], None]
) -> tuple[str, bool]:
    state = gitdoor.dirty_state(repository.top)
    if state.changed and not send:
        say("note", f"{len(state.changed)} files with uncommitted changes are not sent; --dirty sends them")
    if not (state.changed and send):
        return tree, False
    paths = [repository.top / name for name in state.changed]
    size = sum(path.stat().st_size for path in paths if path.is_file())
    untracked = f"; {state.untracked} untracked are not sent" if state.untracked else ""
    say("dirty", f"{len(state.changed)} changed files, {size} bytes, are sent with HEAD's tree{untracked}")
    return gitdoor.snapshot_tree(repository.top, session.settings.state_dir / "scratch"), True
