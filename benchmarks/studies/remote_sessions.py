"""Whether sessions over sockets leave anything behind: thousands after each other, and more at once than there may be.

Counts and bytes of both ends, which are two processes: what one session held, kept for each, would be seen at once.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import psutil

from benchmarks.studies.study import Row, Study
from engine.distributed.compatibility import DrafterOffer
from engine.distributed.remote_drafter import RemoteDrafter, RemoteModel
from engine.distributed.rpc.client import DrafterChannel
from engine.distributed.rpc.methods import NGRAM
from engine.distributed.sessions import MOST_SESSIONS
from engine.isolation.drafter_process import DrafterProcess

WARM, SESSIONS, PATIENT_S = 1000, 10_000, 120.0
AFTER_EACH_OTHER, AT_ONCE = "10,000 after each other", "more at once than there may be"
TEXT, BONUS = (5, 6, 5), 6


def cases() -> Sequence[str]:
    """Return both."""
    return (AFTER_EACH_OTHER, AT_ONCE)


def run(case: str) -> list[Row]:
    """Open and close sessions of prompt lookup, whose server computes next to nothing."""
    with ExitStack() as stack:
        server = DrafterProcess(["--drafter", "ngram"])
        stack.callback(server.close)
        channel = DrafterChannel(server.address, NGRAM)
        stack.callback(channel.close)
        offer: DrafterOffer = channel.describe()
        model = RemoteModel(offer, 1 << 31, channel.connect, "float32", None, PATIENT_S)
        if case == AT_ONCE:
            return [_at_once(model)]
        ends = {"client": psutil.Process(), "server": psutil.Process(server.process.pid)}
        _one_by_one(model, WARM)
        before = {name: _held(process) for name, process in ends.items()}
        answered = _one_by_one(model, SESSIONS)
        return [
            {
                "end": name,
                "sessions": SESSIONS,
                "answered": answered,
                "bytes_before": before[name]["rss"],
                "bytes_after": (after := _held(process))["rss"],
                "files_before": before[name]["files"],
                "files_after": after["files"],
                "threads_before": before[name]["threads"],
                "threads_after": after["threads"],
            }
            for name, process in ends.items()
        ]


def _one_by_one(model: RemoteModel, count: int) -> int:
    """Open, ask once and close so many sessions; return how many were answered with a draft."""
    answered = 0
    for _ in range(count):
        drafter = _shown(model)
        answered += drafter.ask(BONUS, len(TEXT), 1).take().count
        drafter.close()
    _until(lambda: threading.active_count() < 16)
    gc.collect()
    return answered


def _at_once(model: RemoteModel) -> Row:
    """Fill the table, ask for one more, and close one: what is refused then, and whether there is room again."""
    held = [_shown(model) for _ in range(MOST_SESSIONS)]
    answered = sum(drafter.ask(BONUS, len(TEXT), 1).take().count for drafter in held)
    late = _shown(model)
    refused = _until(lambda: "no connection" in (late.ask(BONUS, len(TEXT), 1).take().skipped or ""))
    still = sum(drafter.ask(BONUS, len(TEXT), 1).take().count for drafter in held)
    held.pop().close()
    room = _until(lambda: late.ask(BONUS, len(TEXT), 1).take().count == 1)
    for drafter in (*held, late):
        drafter.close()
    return {
        "allowed": MOST_SESSIONS,
        "answered": answered,
        "one_more_refused": refused,
        "others_still_answered": still,
        "room_after_one_closed": room,
    }


def _shown(model: RemoteModel) -> RemoteDrafter:
    drafter = model.open()
    drafter.observe(0, TEXT, None)
    return drafter


def _held(process: psutil.Process) -> dict[str, Any]:
    return {"rss": process.memory_info().rss, "files": process.num_fds(), "threads": process.num_threads()}


def _until(true: Callable[[], bool]) -> bool:
    """Wait for something, and say whether it came."""
    end_s = time.monotonic() + PATIENT_S
    while not true():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


STUDY = Study("remote-sessions", "Do sessions over sockets leave anything behind?", cases, run)
