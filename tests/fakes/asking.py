"""Make requests as a client would, and push them."""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

from bridge.bus.content.commits import REQUEST_FILE, folder_commit
from bridge.bus.sides.requester import RequesterBus
from bridge.bus.views import RequestRef
from bridge.ids import new_id
from bridge.records.request import LimitRequest, Request, RunnerSelector
from bridge.request import key_of, request_branch
from bridge.system.clock import rfc3339
from tests.fakes.memory_bus import MemoryRemote

ZERO = "0" * 64


def make_request(bus_id: str, preset: str, *, now: dt.datetime | None = None, **changes: Any) -> Request:
    """Return a valid request; `changes` replace fields before the idempotency key is made."""
    moment = now or dt.datetime.now(dt.UTC)
    run_id = changes.pop("id", None) or new_id(int(moment.timestamp() * 1000), os.urandom(10))
    fields: dict[str, Any] = {
        "id": run_id,
        "bus_id": bus_id,
        "ref": request_branch("mac-bridge/{preset}-{id}", preset, run_id),
        "principal": "unsigned",
        "preset": preset,
        "params": {},
        "profile": "smoke",
        "runner": RunnerSelector(),
        "limits": LimitRequest(),
        "created": rfc3339(moment),
        "expires": rfc3339(moment + dt.timedelta(hours=1)),
        "idempotency_key": ZERO,
    }
    draft = Request(**{**fields, **changes})
    return draft.evolve(idempotency_key=key_of(draft))


def push(bus: RequesterBus, request: Request, data: bytes | None = None) -> RequestRef:
    """Push a request (or other bytes in its place) and return its branch."""
    return bus.submit(data if data is not None else request.canonical(), request.ref, request.workload).ref


def push_bytes(remote: MemoryRemote, request: Request, data: bytes) -> RequestRef:
    """Push a request branch as anybody with git can: whatever bytes, no client in between."""
    top, objects = folder_commit(
        {REQUEST_FILE: data}, over=(), parents=(), time_unix_s=1_700_000_000, message="anything"
    )
    with remote.lock:
        remote.objects.update({git_object.oid: git_object for git_object in objects})
        remote.refs[request.ref] = top.oid
    return RequestRef(request.id, request.ref, top.oid)
