"""Ask a node, by a job, what it sees of a folder that it has to share with the runner's machine.

What the runner writes and locks, the node has to read and find locked, and the other way round; as the same user, and
with clocks that agree. The node tries its sandbox meanwhile, since that is where runs will be.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Final

import pydantic

from bridge.errors import InfrastructureError
from bridge.executor.engines.interface import ClusterEngine, JobNeeds
from bridge.executor.holder.folder import take
from bridge.executor.interface import HostPaths
from bridge.executor.local import LocalExecutor
from bridge.executor.observe import host as machine
from bridge.executor.removal import remove_tree
from bridge.records.base import Count, Moment, Record, Text
from bridge.records.run import SandboxApplied
from bridge.strictjson import StrictJsonError
from bridge.system.clock import Clock, SystemClock, parse_rfc3339, rfc3339
from bridge.system.durable import write_atomically

TOKEN_FILE, ANSWER_FILE, LOCK_FILE, QUESTION_FILE = "token", "answer.json", "lock", "question.json"
_WALL_S: Final = 120.0
_PAUSE_S: Final = 0.25


class NodeQuestion(Record):
    """What a node is asked beside the folder.

    Attributes:
        paths: what its sandbox would hide and show.
        uid: the user that runs have there; None: the runner's own.
    """

    paths: HostPaths
    uid: Count | None = None


class NodeAnswer(Record):
    """What a node says of the folder and of itself.

    Attributes:
        token: what it read.
        held: whether it found the lock taken that the runner holds.
        uid: its user's number.
        sandbox: what came of trying its sandbox.
    """

    node: Text
    boot_id: Text
    version: Text
    token: Text
    held: bool
    uid: Count
    time: Moment
    sandbox: SandboxApplied


class FolderFinding(Record):
    """What asking a node came to.

    Attributes:
        answer: what it said.
        skew_s: how far its clock is ahead of ours; negative: behind.
        waited_s: from the submission to the answer.
    """

    answer: NodeAnswer
    skew_s: float
    waited_s: float

    def problems(self) -> tuple[str, ...]:
        """Return what keeps runs from being followed through this folder."""
        answer = self.answer
        wrong = {
            f"it is user {answer.uid} there and {os.geteuid()} here": answer.uid != os.geteuid(),
            "a lock that is held here is free there: mount it with locks (NFS: without nolock)": not answer.held,
            f"its clock is {self.skew_s:+.0f} s off": abs(self.skew_s) > 60.0 + self.waited_s,
            f"it has kakeya {answer.version}, this machine {metadata.version('kakeya')}": answer.version
            != metadata.version("kakeya"),
        }
        return tuple(text for text, holds in wrong.items() if holds)


def ask_node(
    engine: ClusterEngine,
    parent: Path,
    argv: Callable[[Path], tuple[str, ...]],
    clock: Clock,
    *,
    patience_s: float,
    question: NodeQuestion | None = None,
    labels: tuple[str, ...] = (),
) -> FolderFinding:
    """Have a node answer through a new folder below `parent`, which goes afterwards.

    Args:
        engine: places the asking.
        parent: an existing folder on what is to be shared.
        argv: returns the command for a folder.
        clock: the machine's clocks.
        patience_s: how long to wait for the answer.
        question: what its sandbox would hide and show; None: nothing but itself.
        labels: of the job that asks, so that a node answers which runs with them get.

    Raises:
        InfrastructureError: the engine does not answer, or no answer came; the text says how the job stood.
    """
    token = secrets.token_hex(8)
    folder = parent / f"probe-{token}"
    folder.mkdir(mode=0o700)
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        take(lock)
        write_atomically(folder / TOKEN_FILE, token.encode())
        write_atomically(folder / QUESTION_FILE, (question or NodeQuestion(paths=HostPaths())).canonical())
        began_s = clock.steady_s()
        job = engine.submit(f"kakeya-probe-{token}", argv(folder), folder / "engine.log", JobNeeds(labels, _WALL_S))
        answer = _wait(engine, job, folder, clock, patience_s)
        now = clock.now()
        if answer.token != token:
            raise InfrastructureError(f"a node read {answer.token[:32]!r} where {token!r} was written")
        skew_s = (parse_rfc3339(answer.time) - now).total_seconds()
        return FolderFinding(answer=answer, skew_s=skew_s, waited_s=clock.steady_s() - began_s)
    finally:
        os.close(lock)
        remove_tree(folder)


def _wait(engine: ClusterEngine, job: str, folder: Path, clock: Clock, patience_s: float) -> NodeAnswer:
    until_s, over = clock.steady_s() + patience_s, 0
    while True:
        try:
            return NodeAnswer.parse((folder / ANSWER_FILE).read_bytes())
        except (OSError, StrictJsonError, pydantic.ValidationError):
            status = engine.look(job)
        over = over + 1 if status is None or status.state == "ended" else 0
        if clock.steady_s() >= until_s or over * _PAUSE_S > patience_s / 4:
            stands = "forgotten" if status is None else f"{status.word} {status.reason}".strip()
            engine.end(job)
            printed = folder / "engine.log"
            last = printed.read_text("utf-8", "replace").strip().splitlines()[-1:] if printed.exists() else []
            detail = f"; it printed: {last[0]}" if last else ""
            raise InfrastructureError(f"no node answered in this folder; job {job} is {stands}{detail}")
        clock.sleep(_PAUSE_S)


def answer(folder: Path) -> None:
    """Answer on a node.

    Raises:
        OSError: the folder is not to be seen, or not to be written.
    """
    clock, token = SystemClock(), (folder / TOKEN_FILE).read_text("ascii")
    question = NodeQuestion.parse((folder / QUESTION_FILE).read_bytes())
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    try:
        locked = not take(lock)
    finally:
        os.close(lock)
    reply = NodeAnswer(
        node=platform.node(),
        boot_id=machine.boot_id(),
        version=metadata.version("kakeya"),
        token=token,
        held=locked,
        uid=os.geteuid(),
        sandbox=LocalExecutor(clock, question.paths, None).sandbox(question.uid),
        time=rfc3339(clock.now()),
    )
    write_atomically(folder / ANSWER_FILE, reply.canonical(), mode=0o600)
