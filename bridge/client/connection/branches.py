"""Where a clone's request branches go: the usual space, or the one that its agent may push to.

What a remote takes shows in a push only. Where it refuses the usual name, the space of the current branch is tried, and
what it took is remembered beside this bus's own repositories.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bridge.bus.refs.names import accepts
from bridge.bus.refs.spaces import template_of
from bridge.client.clone.config import check_template
from bridge.client.connection.session import BusSession
from bridge.errors import RemoteError, UsageError
from bridge.request import DEFAULT_TEMPLATE
from bridge.request.branches import HEADS
from bridge.system.durable import write_atomically
from bridge.system.remote_words import Cause

_FILE: Final = "branch_template"
_MAX_BYTES: Final = 512


def template_for(session: BusSession) -> str:
    """Return the branch template: the configured one, else what a remote took here, else the usual one."""
    return session.settings.bus.branch_template or learned_template(session) or DEFAULT_TEMPLATE


def other_template(session: BusSession, ref: str, error: RemoteError) -> str | None:
    """Return the configured template, else that of the space of this clone's own branch, where a push was refused.

    Args:
        session: the bus.
        ref: full name of the branch that was pushed to.
        error: of that push.

    Returns:
        None where the error is no refusal, there is neither, the bus takes no requests there, or it was refused there.
    """
    if session.embedded or not Cause(error.cause or Cause.UNKNOWN).is_refusal:
        return None
    template, repository = session.settings.bus.branch_template, session.settings.repository
    if template is None and repository is not None:
        template = template_of(repository.current_branch())
    if template is None or _is_made_by(template, ref):
        return None
    return template if _is_accepted(session, template) else None


def _is_made_by(template: str, ref: str) -> bool:
    """Whether a request branch begins and ends as a template has it."""
    return ref.startswith(f"{HEADS}{template.partition('{')[0]}") and ref.endswith(template.rpartition("}")[2])


def remember_template(session: BusSession, template: str) -> None:
    """Remember a template that the remote took; later commands of this clone begin with it."""
    if session.bus_folder is not None:
        write_atomically(session.bus_folder / _FILE, f"{template}\n".encode())


def learned_template(session: BusSession) -> str | None:
    """Return the template that a remote took here where it refused the usual one, else None."""
    if session.bus_folder is None:
        return None
    try:
        with (session.bus_folder / _FILE).open("rb") as file:
            template = file.read(_MAX_BYTES).decode("ascii").strip()
        check_template(template, str(Path(session.bus_folder, _FILE)))
    except (OSError, UnicodeDecodeError, UsageError):
        return None  # what cannot be read is learned again
    return template if _is_accepted(session, template) else None


def check_accepted(session: BusSession, template: str) -> None:
    """Refuse a template on whose branches the bus takes no requests.

    Raises:
        UsageError: it takes none there.
    """
    if not _is_accepted(session, template):
        raise UsageError(
            f"{session.bus.route} takes requests on {', '.join(session.record.request_branches)}; got {template!r}",
            remedy="choose a template of those, or on a host of this bus: kakeya-runner bus allow-branches SPACE",
        )


def _is_accepted(session: BusSession, template: str) -> bool:
    branch = template.replace("{preset}", "x").replace("{id}", "0" * 26)
    return accepts(session.record.request_branches, f"{HEADS}{branch}")
