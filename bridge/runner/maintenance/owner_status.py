"""What a host's owner asks in the morning: what runs now, what waits, what ran last and for whom, and for how long.

Read from the state folder alone, whether or not a runner lives; no network, nothing is changed.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from bridge.executor.holder.folder import RunFolder
from bridge.executor.observe.accelerators.find import given_devices
from bridge.ids import short
from bridge.records.run import HostRecord
from bridge.request import UNSIGNED
from bridge.runner.state import prepared
from bridge.runner.state.folder import StateFolder
from bridge.runner.state.history import JournalLine
from bridge.runner.state.journal import read_lines
from bridge.runner.state.waiting import QueueView, read_queue
from bridge.system.clock import Clock, parse_rfc3339

LAST_COUNT: Final = 20
_MINUTE_S: Final = 60.0
_GIB: Final = 2**30


@dataclass(frozen=True)
class RunSeen:
    """A run on this host.

    Attributes:
        requester: who signed it, or ``unsigned``.
        minutes: for how long it has run, or ran; 0 where nothing was started.
        reason: how it ended; None while it has not.
        card: what it was given of the host's cards; None where there are none to share out.
    """

    id: str
    preset: str
    requester: str
    minutes: float
    reason: str | None = None
    card: str | None = None


@dataclass(frozen=True)
class OwnerStatus:
    """What an owner is told.

    Attributes:
        state: ``serving``, ``paused``, ``draining`` or ``not running``.
        running: the runs that go on, also without a runner.
        queue: as the runner saw it last, None where none has.
        last: the runs that ended last, newest first.
    """

    state: str
    running: tuple[RunSeen, ...]
    queue: QueueView | None
    last: tuple[RunSeen, ...]
    devices: tuple[str, ...]
    disk_free_bytes: int


def owner_status(state: StateFolder, host: HostRecord, clock: Clock, *, alive: bool) -> OwnerStatus:
    """Return what an owner is told of this host.

    Args:
        state: the runner's state folder.
        host: the machine.
        clock: says what time it is.
        alive: whether a runner of this name runs.

    Raises:
        JournalError: the journal does not hold.
    """
    lines = list(read_lines(state.database)) if state.database.exists() else []
    requesters = {line.id: str(line.detail.get("principal") or UNSIGNED) for line in lines if line.event == "claimed"}
    return OwnerStatus(
        state=_word(state, alive=alive),
        running=tuple(_running(state, requesters, clock.now())),
        queue=read_queue(state.queue),
        last=tuple(ended_runs(lines))[:LAST_COUNT],
        devices=host.devices,
        disk_free_bytes=shutil.disk_usage(state.root).free,
    )


def ended_runs(lines: Iterable[JournalLine]) -> Iterator[RunSeen]:
    """Yield the runs that a journal saw end, newest first."""
    by_run: dict[str, list[JournalLine]] = {}
    ended: dict[str, str] = {}
    for line in lines:
        by_run.setdefault(line.id, []).append(line)
        if line.event in {"result_built", "fenced"}:
            ended.pop(line.id, None)  # the order is that of the ends
            ended[line.id] = str(line.detail.get("reason", "another runner's"))
    for run_id, reason in reversed(ended.items()):
        times = {line.event: parse_rfc3339(line.time) for line in by_run[run_id]}
        detail = {name: value for line in by_run[run_id] for name, value in line.detail.items() if value is not None}
        took = times["exited"] - times["started"] if {"exited", "started"} <= times.keys() else dt.timedelta()
        yield RunSeen(
            run_id, str(detail.get("preset", "?")), str(detail.get("principal", UNSIGNED)), _minutes(took), reason
        )


def status_lines(seen: OwnerStatus) -> Iterator[str]:
    """Yield what people read."""
    device = ", ".join(seen.devices) or "no accelerator"
    yield f"runner    {seen.state}; {device}; {seen.disk_free_bytes / _GIB:.1f} GiB of disk free"
    for one in seen.running:
        card = "" if one.card is None else f" on {one.card}"
        yield f"now       {short(one.id)}  {one.preset}  for {one.requester}  {one.minutes:.1f} min{card}"
    if not seen.running:
        yield "now       nothing runs"
    queue = seen.queue
    if queue is not None and queue.not_taking and seen.state != "not running":
        yield f"policy    takes nothing: {queue.not_taking}"
    if queue is not None and queue.moved:
        yield f"bus       {queue.moved}"
    if queue is None or not (queue.requests or queue.more):
        yield "queue     nothing waits" if queue is not None else "queue     unknown: no runner has listed the bus yet"
    else:
        for waiting in queue.requests:
            yield f"queue     {short(waiting.id)}  {waiting.why or 'not looked at yet'}"
        if queue.more:
            yield f"queue     and {queue.more} more (seen {queue.time})"
    for one in seen.last:
        yield f"ended     {short(one.id)}  {one.preset}  for {one.requester}  {one.minutes:.1f} min  {one.reason}"


def _running(state: StateFolder, requesters: dict[str, str], now: dt.datetime) -> Iterator[RunSeen]:
    for folder in sorted(state.runs.iterdir()):
        known = prepared.read(folder) if RunFolder(folder).taken() else None
        if known is not None:
            cards = given_devices(known.spec.environment)
            requester = known.spec.principal or requesters.get(known.id, UNSIGNED)
            minutes = _minutes(now - parse_rfc3339(known.started))
            yield RunSeen(known.id, known.spec.preset, requester, minutes, card=",".join(cards) if cards else None)


def _word(state: StateFolder, *, alive: bool) -> str:
    if not alive:
        return "not running"
    return "draining" if state.drain.exists() else "paused" if state.pause.exists() else "serving"


def _minutes(span: dt.timedelta) -> float:
    return max(0.0, span.total_seconds() / _MINUTE_S)
