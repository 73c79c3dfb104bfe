"""Hand out the turns of a launch to the asker, and read what the servers did meanwhile.

The command of such a launch holds the servers; the orders and stamps of docs/turns.md go to a program of the runner's
own that asks them. Who of the servers worked is read here, from outside, around every turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psutil

from bridge.errors import InfrastructureError
from bridge.executor.command.plan import open_pipe
from bridge.executor.processes.tree import MARKER_NAME
from bridge.executor.removal import remove_tree
from bridge.executor.sandbox.confinement import Wrapped
from bridge.executor.servers.asker import NOBODY, sandboxed_process, start_asker
from bridge.executor.turns import work
from bridge.executor.turns.launch import LaunchTurns
from bridge.executor.turns.pipe import TurnPipeError
from bridge.limits import MIB, REPORT_MAX_BYTES
from bridge.records.turns import Turn

NEITHER: Final = "neither"
SEEN_MAX_BYTES: Final = 8 * MIB
_ENDS_S: Final = 10.0
_SAID_MAX_BYTES: Final = 2000
_PORTS: Final = range(20_000, 32_000)
_DRAWN: Final = random.SystemRandom()


@dataclass
class ServersSeen:
    """What the launches of one command showed of its servers: what the runner reports of them.

    Attributes:
        answers: a row an answer.
        turns: by turn the processor seconds of each server and of processes of the run that are neither's.
        launches: by launch the asker's own delay, the memory of each server, and batches answered at unlike lengths.
    """

    answers: list[dict[str, Any]] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)

    def report(self) -> bytes:
        """Return the report of the command."""
        value = {"metrics": {}, "answers": self.answers, "turns": self.turns, "launches": self.launches}
        return json.dumps(value, separators=(",", ":")).encode()

    def full(self) -> str:
        """Return why no further launch may begin, nothing while one may: a report that is too long is left behind."""
        count = len(self.launches)
        if not count or len(self.report()) * (count + 1) <= REPORT_MAX_BYTES * count:
            return ""
        room = f"the answers of a further launch do not fit into a report of {REPORT_MAX_BYTES // MIB} MiB"
        return f"{room}; lower max_tokens, or ask fewer prompts"


class AskedTurns(LaunchTurns):
    """Hands out the turns of one launch of servers to the asker.

    Args:
        asker: its command line.
        observed: gets what the launch showed.
        uid: the user that the asker becomes where this process may choose; None for nobody.
        given: of `LaunchTurns`.
    """

    def __init__(
        self, *given: Any, asker: Sequence[str], observed: ServersSeen, uid: int | None = None, **more: Any
    ) -> None:
        super().__init__(*given, **more)
        self._asker, self._observed, self._uid = asker, observed, NOBODY if uid is None else uid
        self._status: int | None = None
        self._servers: dict[str, int] = {}
        self._lengths: dict[tuple[int, str], list[int]] = {}
        self._differing: list[int] = []
        self._rss_bytes: dict[str, int] = {}
        self._ports = _free_ports(len(self._plan.arms))

    def __enter__(self) -> AskedTurns:
        """Open the pipes to the program that holds the servers, and the asker's files."""
        super().__enter__()
        self._hold, self._started = open_pipe(self._stack), open_pipe(self._stack)
        self._answered, self._log = (self._stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))  # noqa: SIM115
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the thread, then take what the asker wrote down."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        rows = list(self._rows())
        super().__exit__(kind, error, trace)
        asker_s = next((row["asker_s"] for row in rows if "asker_s" in row), None)
        self._observed.answers += [{"launch": self._number, **row} for row in rows if "asker_s" not in row]
        self._observed.launches.append(
            {
                "launch": self._number,
                "asker_s": asker_s,
                "rss_bytes": self._rss_bytes,
                "unlike_lengths": self._differing,
            }
        )

    def connect(self, wrapped: Wrapped) -> Wrapped:
        """Return the command with its ends of the pipes to it."""
        if wrapped.status_fd is not None:
            self._status = os.dup(wrapped.status_fd)
            self._stack.callback(os.close, self._status)
        return replace(wrapped, pass_fds=(*wrapped.pass_fds, self._hold.read, self._started.write))

    def environment(self) -> dict[str, str]:
        """Return what the program that holds the servers has to know."""
        return {
            "KAKEYA_SERVERS_HOLD": str(self._hold.read),
            "KAKEYA_SERVERS_STARTED": str(self._started.write),
            "KAKEYA_SERVER_PORTS": ",".join(map(str, self._ports)),
        }

    def _is_over(self) -> bool:
        """Return whether nobody waits any more; servers print nothing here, and the asker has a patience of its own."""
        self._alive()
        return super()._is_over()

    def _close_given(self) -> None:
        """Close here the ends that the program which holds the servers has; the asker gets those of the turns."""
        self._hold.close_read()
        self._started.close_write()

    def _converse(self) -> None:
        """Start the asker once the servers were started, hand out its turns, and let the servers end."""
        inside = sandboxed_process(self._status, self._ending)
        started = self._told_servers()
        self._servers = {arm: pid for arm, number in started.items() if (pid := self._outside(number)) is not None}
        variables = {
            "PATH": "/usr/bin:/bin",
            MARKER_NAME: self._marker,  # by which it is found when this process is killed
            "KAKEYA_TURN_ORDERS": str(self._orders.read),
            "KAKEYA_TURN_ANSWERS": str(self._answers.write),
            "KAKEYA_SERVERS_SEEN": str(self._answered.fileno()),
            "KAKEYA_SERVER_PORTS": ",".join(map(str, self._ports)),
        }
        ends = (self._orders.read, self._answers.write, self._answered.fileno())
        try:
            with start_asker(
                self._asker, beside=inside, uid=self._uid, variables=variables, log_fd=self._log.fileno(), pass_fds=ends
            ) as child:
                self._orders.close_read()
                self._answers.close_write()
                try:
                    super()._converse()
                finally:  # its pipe may be closed a moment before it has printed why
                    child.wait(0.0 if self._ending.is_set() else _ENDS_S)
        except (TurnPipeError, InfrastructureError) as error:
            why = self._printed() or str(error)
            self._tell(why)
            raise TurnPipeError(why) from error
        self._tell("end")

    def _hand_out(self, samples: int) -> None:
        """Let the asker make its prompts, hand out the turns, and ask one drawn batch of each server again."""
        self._ask("prepare", 0, tokens=None, seconds=None)
        super()._hand_out(samples)
        for arm in self._shuffled(self._plan.arms):
            self._ask(arm, self._draw.randrange(samples), tokens=None, seconds=0.0)

    def _sample(self, sample: int) -> None:
        """Let both servers answer a batch; one that they did not answer at equal length is in no ratio."""
        super()._sample(sample)
        lengths = [self._lengths.get((sample, arm), []) for arm in self._plan.arms]
        if lengths[0] != lengths[1] or min(lengths[0], default=-1) < 0:
            self._differing.append(sample)
            self._turns = [turn.evolve(over=turn.over and turn.sample != sample) for turn in self._turns]

    def _turn(self, arm: str, sample: int, tokens: int | None) -> Turn:
        before = self._worked()
        turn = super()._turn(arm, sample, tokens)
        after = self._worked()
        spent = {name: max(0.0, after[name] - before.get(name, 0.0)) for name in after}
        whole_s = turn.done_s - turn.go_s
        self._observed.turns.append(
            {
                "launch": self._number,
                "turn": turn.number,
                "arm": arm,
                "sample": sample,
                "wall_s": whole_s,
                "cpu_s": spent,
            }
        )
        self._turns[-1] = turn.evolve(cpu_s=spent.get(self._server_of(arm)))
        return self._turns[-1]

    def _ask(
        self, arm: str, sample: int, *, tokens: int | None, seconds: float | None
    ) -> tuple[float, float, dict[str, Any]]:
        go_s, done_s, answer = super()._ask(arm, sample, tokens=tokens, seconds=seconds)
        lengths = answer.get("lengths")
        if seconds is None and isinstance(lengths, list):
            self._lengths[sample, arm] = lengths
            done_s -= answer["counting_s"]  # who asks counts tokens once every answer is there
        return go_s, done_s, answer

    def _server_of(self, arm: str) -> str:
        """Return which server answers for an arm: one that is asked alone answers for both."""
        return arm if arm in self._servers or not self._servers else next(iter(self._servers))

    def _worked(self) -> dict[str, float]:
        """Return the processor seconds of each server so far, and note its memory."""
        if not self._servers:
            return {}
        whole = work.read(self._root).cpu_s
        spent: dict[str, float] = {}
        rest = set(whole)
        for arm, pid in self._servers.items():
            own = {pid, *work.members(pid)}
            spent[arm] = sum(whole.get(process, 0.0) for process in own)
            self._rss_bytes[arm] = max(self._rss_bytes.get(arm, 0), sum(map(_rss_bytes, own)))
            rest -= own
        return {**spent, NEITHER: sum(whole[process] for process in rest)}

    def _told_servers(self) -> dict[str, int]:
        """Return the process of each server as the program that holds them told it."""
        line, until_s = b"", time.monotonic() + _ENDS_S
        while not line.endswith(b"\n") and time.monotonic() < until_s and not self._ending.is_set():
            with contextlib.suppress(BlockingIOError):
                block = os.read(self._started.read, 4096)
                if not block:
                    break
                line += block
                continue
            time.sleep(0.01)
        with contextlib.suppress(ValueError):
            pids = json.loads(line or b"null")
            if isinstance(pids, dict):
                return {arm: pid for arm, pid in pids.items() if arm in self._plan.arms and type(pid) is int}
        return {}

    def _outside(self, number: int) -> int | None:
        """Return the process that a sandbox of this launch calls by a number of its own; None where there is none."""
        for pid in work.members(self._root):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
                line = next((field for field in text.splitlines() if field.startswith("NSpid:")), "NSpid: 0")
                if int(line.split()[-1]) == number and len(line.split()) > (2 if self._status is not None else 1):
                    return pid
        return number if not work.PROC.exists() else None

    def _printed(self) -> str:
        """Return the last line that the asker printed."""
        lines = os.pread(self._log.fileno(), _SAID_MAX_BYTES, 0).decode("utf-8", "replace").splitlines()
        return lines[-1] if lines else ""

    def _tell(self, word: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._hold.write, word.encode()[:_SAID_MAX_BYTES] + b"\n")

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield what the asker wrote down; an unfinished last line is left out."""
        data = os.pread(self._answered.fileno(), SEEN_MAX_BYTES, 0)
        for line in data.splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)


def write_reports(out: Path, reports: Mapping[str, bytes]) -> None:
    """Write what the runner reports of servers, in the place of anything that they left under these names.

    Args:
        out: the report directory; nobody else writes there any more.
        reports: by path below it.
    """
    for name, data in reports.items():
        folder = out / Path(name).parent
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
        else:
            remove_tree(folder)
        folder.mkdir(parents=True)
        (out / name).write_bytes(data)


def _free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody holds here; in a network of the run's own all are free.

    None that the kernel hands out by itself: who asks again and again at such a port, before anybody listens there, is
    one day given the very port to ask from, connects to itself, and holds it.
    """
    free: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(free) < count:
            port = _DRAWN.choice(_PORTS)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                free.append(port)
    return free


def _rss_bytes(pid: int) -> int:
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0
