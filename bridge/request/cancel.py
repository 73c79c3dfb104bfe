"""Cancel requests: principal and run, as bytes that can be signed.

A cancel is signed in the requests' own namespace; the two cannot be taken for each other, as neither has the other's
fields.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationError

from bridge import strictjson
from bridge.errors import RequestRejectedError
from bridge.records.base import Moment, Record, RunId, Text

SCHEMA = 1


class CancelRequest(Record):
    """What a cancel branch holds.

    Attributes:
        id: the run to be ended.
        bus_id: the bus it is meant for.
        principal, signer: who asks, as in a request.
    """

    schema_version: Literal[1] = 1
    id: RunId
    bus_id: Text
    principal: Text
    signer: Text | None
    time: Moment


def parse_cancel(data: bytes, *, run_id: str, bus_id: str) -> CancelRequest:
    """Return the cancel in untrusted bytes.

    Raises:
        RequestRejectedError: it is none, or is meant for another run or bus.
    """
    try:
        cancel = CancelRequest.parse(data)
    except (strictjson.StrictJsonError, ValidationError) as error:
        raise RequestRejectedError("the cancel branch holds no cancel of this version") from error
    if cancel.canonical() != data or (cancel.id, cancel.bus_id) != (run_id, bus_id):
        raise RequestRejectedError("the cancel is meant for another run or another bus, or is not canonical")
    return cancel
