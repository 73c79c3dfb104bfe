"""The extension ``io.modelcontextprotocol/tasks`` (specification 2026-07-28): a run is a task under its own id.

The run lives on the bus, so a task needs no store, and another server answers for it after this one has gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.mcp.interface import Document

EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 5000
_CANCELLED: Final = "cancelled"


def status_of(document: Document) -> str:
    """Return the task status of a run: a program that failed has an answer, so it is completed."""
    if not document["terminal"]:
        return "working"
    return "cancelled" if document["outcome"]["reason"] == _CANCELLED else "completed"


def task(document: Document, now: str) -> dict[str, Any]:
    """Return the fields of the task of a run.

    Args:
        document: of the run.
        now: when it was looked at, RFC 3339.
    """
    request = document.get("request")
    return {
        "taskId": document["id"],
        "status": status_of(document),
        "statusMessage": document["headline"] or document["outcome"]["reason"],
        "createdAt": now if request is None else request["created"],
        "lastUpdatedAt": now,
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def created(document: Document, now: str) -> dict[str, Any]:
    """Return the result that stands for the answer of a call which started a run."""
    return {"resultType": "task", **task(document, now)}


def got(document: Document, now: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of ``tasks/get``; `result` is that of the call, shown when the run has ended."""
    fields = task(document, now)
    return {**fields, "result": dict(result)} if fields["status"] == "completed" else fields
