"""The code that is sent along: a commit's tree, or the work tree as it is, for presets that test the request's code."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bridge.client.connection.session import BusSession
from bridge.errors import UsageError
from bridge.presets.model import Preset
from bridge.records.base import ParamValue
from bridge.records.request import Workload

ATTRIBUTES_MAX_BYTES: Final = 64 * 1024
_SHOWN_COUNT: Final = 3


def choose_workload(
    session: BusSession, preset: Preset, *, ref: str | None, dirty: bool, say: Callable[[str, str], None]
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
    return send_code(session, preset.name, ref=ref, dirty=dirty, say=say)


def send_code(
    session: BusSession, preset: str, *, ref: str | None, dirty: bool, say: Callable[[str, str], None]
) -> Workload:
    """Return the workload that is sent with a request: HEAD, another commit, or the work tree as it is.

    Raises:
        UsageError: there is no clone, or --dirty and --ref contradict each other.
    """
    repository = session.settings.repository
    if repository is None:
        raise _no_clone(preset)
    if dirty and ref is not None:
        raise UsageError("--dirty sends the work tree and --ref another commit; give one of them")
    from bridge.bus.content.workload import capture
    from bridge.client.clone import git_door

    if _uses_lfs(repository.top):
        say("note", "files under git-lfs travel as pointers; the host gets them from the LFS server its owner pinned")
    state = git_door.dirty_state(repository.top)
    if dirty and not state.has_work_tree:
        raise UsageError(
            f"--dirty sends a work tree, and {repository.top} is a bare repository", remedy="--ref REV sends a commit"
        )
    if ref is None and state.changed and not dirty:
        say("note", f"{len(state.changed)} files with uncommitted changes are not sent; --dirty sends them")
    if dirty and state.unmerged:
        say("note", f"{state.unmerged} files are in the middle of a merge: their conflict markers are sent as they are")
    # Beside the bus's own repositories, so that nothing is written to the user's.
    folder = session.bus_folder or session.settings.state_dir / "scratch"
    captured = capture(repository.top, state=folder, rev=ref or "HEAD", dirty=dirty)
    if captured.files:
        untracked = f"; {state.untracked} untracked are not sent" if state.untracked else ""
        say("dirty", f"{captured.files} changed files, {captured.bytes} bytes, are sent with HEAD's tree{untracked}")
    if captured.submodules:
        names = ", ".join(captured.submodules[:_SHOWN_COUNT])
        more = f" and {len(captured.submodules) - _SHOWN_COUNT} more" if len(captured.submodules) > _SHOWN_COUNT else ""
        say("note", f"submodules are not sent: {names}{more} will be empty folders on the host")
    if captured.twins:
        first, second = captured.twins[0]
        more = f" and {len(captured.twins) - 1} more pairs" if len(captured.twins) > 1 else ""
        say("note", f"{first!r} and {second!r}{more} are one file on a Mac, which refuses them; Linux takes both")
    return captured.workload


def _no_clone(preset: str) -> UsageError:
    """Return the error of a folder without a clone; git's own variables may name one that lies elsewhere."""
    elsewhere = os.environ.get("GIT_DIR")
    if elsewhere is None:
        return UsageError(f"preset {preset!r} needs code to send", remedy="run it inside a git clone")
    return UsageError(
        f"preset {preset!r} needs code to send: GIT_DIR names {elsewhere!r}, and code is sent from a clone with a .git",
        remedy=f"cd into {shlex.quote(elsewhere)} and send a commit of it: --ref HEAD",
    )


def resolve_names(top: Path | None, preset: Preset, values: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
    """Return the parameters with the revisions of a clone replaced by the full ids of their commits.

    Raises:
        UsageError: there is no such revision.
    """
    resolved = dict(values)
    for name in preset.commits:
        given = resolved.get(name)
        if isinstance(given, str) and top is not None:
            from bridge.bus.content.workload import resolve_commit

            resolved[name] = resolve_commit(top, given)
    return resolved


def name_commits(
    session: BusSession, preset: Preset, values: Mapping[str, ParamValue], workload: Workload | None
) -> dict[str, ParamValue]:
    """Return the parameters with revisions replaced by the full ids of their commits.

    What the host would refuse is refused here, before anything is pushed: another machine knows another `main`.

    Raises:
        UsageError: no such revision, the very commit that is sent, or one that is not in its history.
    """
    repository = session.settings.repository
    resolved = resolve_names(None if repository is None else repository.top, preset, values)
    for name in preset.commits:
        given, commit = values.get(name), resolved.get(name)
        if not isinstance(commit, str) or repository is None or workload is None:
            continue  # binding says that it is missing
        from bridge.bus.content.workload import UNSHALLOW, is_ancestor, is_shallow

        if commit == workload.commit:
            dirty = " Uncommitted changes do not make it another: commit them first." if workload.dirty else ""
            raise UsageError(
                f"{name} {given!r} is {commit[:12]}, the very commit that is sent.{dirty}",
                remedy=f"name an earlier one: -p {name}=HEAD~1",
            )
        if not is_ancestor(repository.top, commit, workload.commit):
            both = f"name what both come from: -p {name}=$(git merge-base {commit[:12]} {workload.commit[:12]})"
            raise UsageError(
                f"{name} {given!r} ({commit[:12]}) is not in the history of {workload.commit[:12]}: it is not pushed",
                remedy=UNSHALLOW if is_shallow(repository.top) else both,
            )
    return resolved


def _uses_lfs(top: Path) -> bool:
    """Whether the clone's own attributes name git-lfs; a look at one file, for a hint only."""
    try:
        with (top / ".gitattributes").open("rb") as attributes:
            return b"filter=lfs" in attributes.read(ATTRIBUTES_MAX_BYTES)
    except OSError:
        return False
