"""Push a probe to the request namespace and delete it: only a push shows whether one is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.client.connection.branches import other_template, remember_template, template_for
from bridge.client.connection.identity import with_setting
from bridge.client.connection.session import BusSession
from bridge.errors import RemoteError
from bridge.request import request_branch

_NO_RUN: Final = "0" * 26


@dataclass(frozen=True)
class PushTrial:
    """What a probe came to: the template of the branches that the remote takes, and a branch that could not be deleted.

    Attributes:
        refused: why the usual branches are refused, where others are taken in their place.
    """

    template: str
    left: str | None = None
    refused: str | None = None


def try_push(session: BusSession) -> PushTrial:
    """Push a branch no runner acts on and delete it, in the agent's own space where the usual one is refused.

    Raises:
        RemoteError: the remote refuses the push.
    """
    template = template_for(session)
    try:
        return PushTrial(template, session.bus.try_requests(template))
    except RemoteError as error:
        other = other_template(session, request_branch(template, "doctor", _NO_RUN), error)
        if other is None:
            raise with_setting(session, error) from error
        trial = PushTrial(other, session.bus.try_requests(other), refused=error.cause)
        remember_template(session, other)
        return trial
