"""Tell of a delivered result, and keep in the journal that it is still to be told of: a crash in between loses nothing.

A crash while it is being told makes the next runner tell it again, so whoever is told has to bear that.
"""

from __future__ import annotations

from collections.abc import Mapping

import pydantic

from bridge.bus.views import RequestRef
from bridge.errors import InfrastructureError, IntegrityError
from bridge.records import Request
from bridge.run.outcomes import Ending
from bridge.runner.actions.announce import RunAnnouncement, nobody
from bridge.runner.connection.link import BusLink
from bridge.runner.host import Host
from bridge.runner.state.journal import OWED, JournalLine
from bridge.strictjson import StrictJsonError


def owed(host: Host, ref: RequestRef) -> dict[str, str]:
    """Return what the journal keeps of a delivered run that is still to be told of; nothing where nobody is told."""
    return {} if host.announce is nobody else {OWED: "announcement", "ref": ref.ref, "request_oid": ref.oid}


def debtor(line: JournalLine) -> RequestRef:
    """Return the request that a journal line says is still to be told of."""
    return RequestRef(line.id, str(line.detail.get("ref", "")), str(line.detail.get("request_oid", "")))


def tell(host: Host, ended: RunAnnouncement) -> None:
    """Tell of a result and note that it is done."""
    host.announce(ended)
    _done(host, ended.ref.id)


def tell_late(host: Host, link: BusLink, ref: RequestRef, ending: Ending, result_oid: str) -> None:
    """Tell of a result as it was published; one that cannot be read now stays to be told of."""
    try:
        with link.lock:
            files = link.bus.read_result(result_oid).files
    except InfrastructureError as error:
        host.say(f"{ref.id[-8:]} delivered, but its result cannot be read to tell of it: {error.message}")
        return
    except IntegrityError as error:
        host.say(f"{ref.id[-8:]} delivered, but nobody is told of it: {error.message}")
        _done(host, ref.id)
        return
    tell(host, RunAnnouncement(ref, link.bus.route, _request(files), ending, files))


def _done(host: Host, run_id: str) -> None:
    if host.journal.of(run_id):  # else its copy was already its end
        host.journal.append("announced", run_id)


def _request(files: Mapping[str, bytes]) -> Request | None:
    """Return the request in a result, None where it is none."""
    try:
        return Request.parse(files.get("request.json", b""))
    except (StrictJsonError, pydantic.ValidationError):
        return None
