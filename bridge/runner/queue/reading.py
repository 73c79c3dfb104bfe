"""Look at a request before claiming it: whom it is for. Whether it is a request at all is judged after the claim."""

from __future__ import annotations

from bridge.bus.views import ReceivedRequest, RequestRef
from bridge.errors import RequestRejectedError
from bridge.records import Request
from bridge.request import UNSIGNED, parse
from bridge.runner.connection.link import BusLink
from bridge.runner.host import Host


def receive(link: BusLink, ref: RequestRef) -> ReceivedRequest | None:
    """Return the pushed bytes, or None when there are none to read: whoever claims it publishes the rejection.

    Raises:
        FencedError: it is done already.
        RemoteError: the bus did not answer.
    """
    try:
        with link.lock:
            return link.bus.read_request(ref)
    except RequestRejectedError:
        return None


def quota_name(host: Host, request: Request | None, received: ReceivedRequest | None) -> str:
    """Return whose quota a request counts against."""
    if received is None:
        return UNSIGNED
    return host.signers.quota_name(request, received.data, received.signature)


def peek(host: Host, link: BusLink, ref: RequestRef, received: ReceivedRequest | None) -> Request | None:
    """Return the request if it is one."""
    if received is None:
        return None
    try:
        return parse(received.data, ref=ref.ref, bus_id=link.record.bus_id, now=host.clock.now())
    except RequestRejectedError:
        return None
