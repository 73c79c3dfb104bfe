"""Run request code as the peer of a host command: two pipes between them, and no other shared resource.

Two sandboxes, two users, two directories. The command sees no checkout, the peer no report directory; what they share
is a pipe each way. Knows nothing about what is asked.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Literal

from bridge.errors import InfrastructureError, SandboxUnavailableError
from bridge.executor.command.bounds import Bounds, rlimits
from bridge.executor.command.logs import LogKeeper
from bridge.executor.command.marks import MarkReader
from bridge.executor.command.plan import CommandEnd, CommandPlan, Pipe, command_environment, open_pipe
from bridge.executor.command.supervise import Supervisor
from bridge.executor.interface import Hooks, RunDirectory
from bridge.executor.processes.suspend_server import Holder
from bridge.executor.sandbox.choice import confine
from bridge.executor.sandbox.confinement import Confinement, Wrapped
from bridge.limits import KIB
from bridge.records.jobspec import Command, JobSpec, SandboxSpec
from bridge.records.run import CommandResult, PeerRecord, SandboxApplied
from bridge.system.clock import Clock

LOG_BYTES: Final = 64 * KIB
_START_S: Final = 60.0
_REMEDY: Final = "run the service as root on Linux; set sandbox.uid and sandbox.peer_uid to different users"


@dataclass(frozen=True)
class Beside:
    """What confines the peers of a run: everything that does not change from one command to the next."""

    spec: JobSpec
    directory: RunDirectory
    confinement: Confinement


def set_apart(spec: JobSpec, directory: RunDirectory, offered: Callable[[int], SandboxApplied]) -> Beside | None:
    """Move the request's tree to a directory of the peers' own, and confine them there; None for a run without peers.

    Raises:
        SandboxUnavailableError: this host cannot keep the two sides apart; nothing was started.
    """
    command = next((command for command in spec.commands if command.peer is not None), None)
    if command is None or command.peer is None:
        return None
    uid, other = spec.sandbox.uid, spec.sandbox.peer_uid
    if sys.platform != "linux" or uid is None or other is None or uid == other or spec.sandbox.mode != "required":
        raise SandboxUnavailableError(
            f"this run needs two users in two sandboxes on Linux; got {uid} and {other}, sandbox {spec.sandbox.mode}",
            remedy=_REMEDY,
        )
    root = directory.root / "peer"
    own = RunDirectory(root, root / "work", root / "out", root / "home", root / "tmp")
    for folder in (root, own.out, own.home, own.tmp):
        folder.mkdir(mode=0o700)
    directory.work.rename(own.work)
    directory.work.mkdir(mode=0o700)
    sandbox = SandboxSpec(mode="required", read_only=spec.sandbox.read_only, uid=other)
    limits = spec.limits.evolve(inactivity_s=spec.limits.wall_s, grace_s=0.0, log_bytes=LOG_BYTES)
    inner = spec.evolve(
        commands=(Command(name=command.name, argv=command.peer),), sandbox=sandbox, limits=limits, outputs=()
    )
    return Beside(inner, own, confine(inner, own, offered(other)))


class PeerProcess:
    """Runs a command's peer in a thread while the block lasts.

    Attributes:
        record: what became of it; None until the block has ended, or when it could not be started.
        failed: what kept the executor from starting it, or None.
        log: what it wrote, capped.
    """

    def __init__(
        self, command: Command, beside: Beside, marker: str, elapsed_s: Callable[[], float], clock: Clock
    ) -> None:
        self.record: PeerRecord | None = None
        self.failed: str | None = None
        self.log = b""
        self.nonce = secrets.token_hex(32)
        self._argv = command.peer or ()
        self._name = command.name
        self._command = command
        self._beside = beside
        self._marker = f"{marker}-peer"
        self._elapsed_s = elapsed_s
        self._offset_s = elapsed_s()
        self._bounds = Bounds(beside.spec.limits, beside.directory.root, clock)
        self._root = 0
        self._started = threading.Event()
        self._over = threading.Event()
        self._ended: CommandEnd | None = None
        self._stack = ExitStack()
        self._thread = threading.Thread(target=self._serve, name="kakeya-peer", daemon=True)

    def __enter__(self) -> PeerProcess:
        with ExitStack() as stack:
            self._asks, self._replies, self._orders, self._done = (_plain_pipe(stack) for _ in range(4))
            self._thread.start()
            stack.callback(self._thread.join)
            stack.callback(self._over.set)
            self._started.wait(_START_S)
            self._holder = Holder(self._orders.read, self._done.write, lambda: self._root, self._elapsed_s)
            stack.enter_context(self._holder)
            stack.callback(self._hand_over)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it with everything it started, and write down what became of it."""
        self._stack.close()
        if self._ended is not None:
            self.record = self._recorded(self._ended.result)
            self.failed = self.failed or self._ended.killed or self._ended.failed
            stop = self._ended.stop
            if stop is not None and stop.ending != "interrupted":
                self.log += f"[kakeya] the peer was stopped: {stop.message}\n".encode()

    def connect(self, wrapped: Wrapped) -> Wrapped:
        """Return the command with its ends of the pipes."""
        return replace(wrapped, pass_fds=(*wrapped.pass_fds, *self._command_ends()))

    def environment(self) -> dict[str, str]:
        """Return what the command has to know: its descriptors and the nonce."""
        ask, reply, order, done = self._command_ends()
        return {
            "KAKEYA_PEER_ASK": str(ask),
            "KAKEYA_PEER_REPLY": str(reply),
            "KAKEYA_PEER_ORDER": str(order),
            "KAKEYA_PEER_DONE": str(done),
            "KAKEYA_NONCE": self.nonce,
        }

    def hooks(self, hooks: Hooks) -> Hooks:
        """Return the run's hooks, which let go of the command's ends as soon as it has them itself."""

        def on_started(pid: int, started: float, marker: str) -> None:
            self._hand_over()
            hooks.on_started(pid, started, marker)

        return replace(hooks, on_started=on_started)

    def _command_ends(self) -> tuple[int, int, int, int]:
        return self._asks.write, self._replies.read, self._orders.write, self._done.read

    def _hand_over(self) -> None:
        self._asks.close_write()
        self._replies.close_read()
        self._orders.close_write()
        self._done.close_read()

    def _serve(self) -> None:
        """Supervise the peer until it ends or the command has."""
        spec, directory = self._beside.spec, self._beside.directory
        log = LogKeeper(lambda _: None, LOG_BYTES)
        # Its death needs no note in a journal: its subreaper ends with the runner, its group carries the run's marker.
        hooks = Hooks(on_log=lambda _: None, on_started=self._on_started, should_stop=self._should_stop)
        supervisor = Supervisor(
            marker=self._marker, hooks=hooks, log=log, marks=MarkReader(), bounds=self._bounds,
            on_usage=lambda _t_s, _usage: None,
        )  # fmt: skip
        try:
            with ExitStack() as stack:
                marks = open_pipe(stack)
                environment = command_environment(spec, self._command, directory, self._marker, marks.write)
                for name in ("KAKEYA_SAMPLE_PIPE", "KAKEYA_OUT"):
                    del environment[name]
                ends = {"KAKEYA_PEER_ASK": self._asks.read, "KAKEYA_PEER_REPLY": self._replies.write}
                environment |= {name: str(number) for name, number in ends.items()}
                wrapped = stack.enter_context(self._beside.confinement.command(self._argv, environment))
                wrapped = replace(wrapped, pass_fds=(*wrapped.pass_fds, *ends.values()))
                bounds = rlimits(spec.limits, self._beside.confinement.applied.uid)
                plan = CommandPlan(f"{self._name}-peer", self._argv, wrapped, bounds, marks, marks.write)
                self._ended = supervisor.run(plan)
        except InfrastructureError as error:
            self.failed = error.message
        finally:
            self._asks.close_read()
            self._replies.close_write()
            self._started.set()
            self.log = log.end()

    def _on_started(self, pid: int, _started: float, _marker: str) -> None:
        self._root = pid
        self._asks.close_read()
        self._replies.close_write()
        self._started.set()

    def _should_stop(self) -> Literal["interrupted"] | None:
        return "interrupted" if self._over.is_set() else None

    def _recorded(self, result: CommandResult) -> PeerRecord:
        return PeerRecord(
            command=self._name,
            argv=self._argv,
            nonce=self.nonce,
            started_s=result.started_s + self._offset_s,
            ended_s=result.ended_s + self._offset_s,
            exit_code=result.exit_code,
            signal=result.signal,
            sandbox=self._beside.confinement.applied,
            held=tuple(self._holder.suspensions),
            survivors=result.survivors,
        )


def _plain_pipe(stack: ExitStack) -> Pipe:
    """Return a pipe whose ends block, as programs expect of what they inherit."""
    pipe = open_pipe(stack)
    os.set_blocking(pipe.read, True)
    return pipe
