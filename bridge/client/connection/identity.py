"""Name the setting that satisfies a host's rule about who commits, filled in for this user."""

from __future__ import annotations

import shlex

from bridge.client.connection.session import BusSession
from bridge.errors import RemoteError
from bridge.system.git import run_in_work_tree
from bridge.system.remote_words import Cause


def with_setting(session: BusSession, error: RemoteError) -> RemoteError:
    """Return the error of a push with the command that satisfies the rule it names; other errors as they are."""
    option = {
        Cause.IDENTITY: ["--commit-as", _own_identity(session)],
        Cause.MESSAGE: ["--message-prefix", "TEXT"],
    }.get(Cause(error.cause or Cause.UNKNOWN))
    if option is None or session.settings.bus.route is None:
        return error
    command = shlex.join(["kakeya-mac", "init", "--bus", session.settings.bus.route, *option])
    return RemoteError(error.message, remedy=command, cause=error.cause)


def _own_identity(session: BusSession) -> str:
    """Return who this user is to git, as far as it says."""
    name, address = (_configured(session, key) for key in ("user.name", "user.email"))
    return f"{name or 'NAME'} <{address or 'ADDRESS'}>"


def _configured(session: BusSession, key: str) -> str:
    repository = session.settings.repository
    folder = session.settings.directory if repository is None else repository.top
    finished = run_in_work_tree(folder, ["config", "--get", key])
    return finished.stdout.decode("utf-8", "replace").strip() if finished.exit_code == 0 else ""
