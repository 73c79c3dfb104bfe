"""Hand out the turns of one launch: who goes next is drawn here, and the stamps taken here are the measurement.

Runs in a thread of its own beside the supervised process. Knows nothing about reports, ratios or verdicts.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final

from bridge.executor.command.plan import open_pipe
from bridge.executor.interface import Hooks
from bridge.executor.observe.accelerators.interface import GpuMeter
from bridge.executor.observe.machine_state import suspended_s
from bridge.executor.sandbox.confinement import Wrapped
from bridge.executor.turns import work
from bridge.executor.turns.pipe import PROTOCOL, TurnPipe, TurnPipeError
from bridge.limits import TEXT_MAX_CHARS
from bridge.records.turns import LaunchRecord, LaunchSeries, SoloStretch, Turn

ORDERS_NAME: Final = "KAKEYA_TURN_ORDERS"
ANSWERS_NAME: Final = "KAKEYA_TURN_ANSWERS"
REFERENCE: Final = "reference"
SAMPLES_MAX: Final = 10_000
TURNS_MAX: Final = 100_000
FIRST_TOKENS: Final = 8
_TOKENS_MAX: Final = 1 << 20
_ANSWERED_MAX: Final = 1 << 53  # tokens of an answer: nobody reads a record of integers without end
_CALIBRATION_MAX_BYTES: Final = 2048


@dataclass
class Calibration:
    """What launch 0 found out; handed to all later launches.

    Attributes:
        turn_tokens: tokens after which a turn ends; 0 for whole samples.
        reported: what the program said of itself.
    """

    turn_tokens: int = FIRST_TOKENS
    reported: dict[str, Any] = field(default_factory=dict)


class LaunchTurns:
    """Hands out the turns of one launch in a thread while the block lasts.

    Args:
        plan: names the arms.
        command: the command's name, for the record.
        number: of the launch; 0 calibrates.
        calibration: written in launch 0, read in the others.
        draw: draws arms and moments; the system's own generator, unless a test knows better.
        after: the launch whose samples are decoded again by the host's own loop, in one stretch; None for a launch.
        alive: is told of every answer: a program of turns need not print anything.

    Attributes:
        record: what happened; None until the block has ended.
    """

    def __init__(
        self,
        plan: LaunchSeries,
        command: str,
        number: int,
        calibration: Calibration,
        *,
        draw: random.Random | None = None,
        gpu: GpuMeter | str = "unknown: not read",
        after: LaunchRecord | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self.record: LaunchRecord | None = None
        self._after, self._alive = after, alive
        self._plan, self._command, self._number, self._calibration = plan, command, number, calibration
        self._draw = random.SystemRandom() if draw is None else draw
        self._gpu = gpu
        self._nonce = ""
        self._root, self._marker = 0, ""
        self._turns: list[Turn] = []
        self._solos: list[SoloStretch] = []
        self._turn_number = 0
        self._ready_s: float | None = None
        self._cut: str | None = "it was not started"
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="kakeya-turns", daemon=True)

    def __enter__(self) -> LaunchTurns:
        with ExitStack() as stack:
            self._orders, self._answers = open_pipe(stack), open_pipe(stack)
            self._stack = stack.pop_all()
        os.set_blocking(self._orders.read, True)  # programs expect that of what they inherit
        self._started_s, self._suspended_s = time.monotonic(), suspended_s() or 0.0
        self._pipe = TurnPipe(self._orders.write, self._answers.read, self._is_over)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the thread, which ends with the program, and write down what happened."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._stack.close()
        self.record = LaunchRecord(
            command=self._command,
            number=self._number,
            block=self._block,
            nonce=self._nonce or "0" * 64,
            turn_tokens=0 if self._plan.unit == "samples" else self._calibration.turn_tokens,
            started_s=self._started_s,
            ready_s=self._ready_s,
            ended_s=time.monotonic(),
            slept_s=max(0.0, (suspended_s() or 0.0) - self._suspended_s),
            turns=tuple(self._turns),
            solos=tuple(self._solos),
            cut=self._cut,
        )

    def connect(self, wrapped: Wrapped) -> Wrapped:
        """Return the command with its ends of the pipe."""
        return replace(wrapped, pass_fds=(*wrapped.pass_fds, self._orders.read, self._answers.write))

    def environment(self) -> dict[str, str]:
        """Return what the command has to know: its descriptors."""
        return {ORDERS_NAME: str(self._orders.read), ANSWERS_NAME: str(self._answers.write)}

    def hooks(self, hooks: Hooks) -> Hooks:
        """Return the run's hooks, which begin to hand out turns as soon as the process is there."""

        def on_started(pid: int, started: float, marker: str) -> None:
            self._root, self._marker = pid, marker
            self._close_given()
            self._thread.start()
            hooks.on_started(pid, started, marker)

        return replace(hooks, on_started=on_started)

    def _is_over(self) -> bool:
        """Return whether nobody waits for an answer any more."""
        return self._ending.is_set()

    def _close_given(self) -> None:
        """Close here the ends of pipes that the process has."""
        self._orders.close_read()
        self._answers.close_write()

    @property
    def _block(self) -> int:
        return (self._number - 1) % self._plan.rule.blocks if self._number else 0

    def _serve(self) -> None:
        self._cut = "a fault of the runner ended it"
        try:
            self._converse()
        except TurnPipeError as error:
            self._cut = "".join(char for char in str(error) if char.isprintable())[:TEXT_MAX_CHARS]
        else:
            self._cut = None
        finally:  # a program that waits for its next turn sees the end of the pipe
            self._orders.close_write()
            self._answers.close_read()

    def _converse(self) -> None:
        """Hear ``ready``, say what launch it is, hand out every turn, say that it is over."""
        answer, self._ready_s = self._pipe.answer("ready")
        samples, calibration = answer.get("samples"), answer.get("calibration", {})
        if answer.get("protocol") != PROTOCOL:
            raise TurnPipeError(f"it speaks protocol {answer.get('protocol')!r:.20}, not {PROTOCOL}")
        if type(samples) is not int or not 1 <= samples <= SAMPLES_MAX or not isinstance(calibration, dict):
            raise TurnPipeError(f"ready needs samples from 1 to {SAMPLES_MAX}, and an object as calibration")
        if self._number == 0:
            if len(repr(calibration)) > _CALIBRATION_MAX_BYTES:
                raise TurnPipeError(f"its calibration is longer than {_CALIBRATION_MAX_BYTES} bytes")
            self._calibration.reported = calibration
        self._nonce = secrets.token_hex(32) if self._after is None else self._after.nonce
        self._pipe.order(
            event="launch",
            protocol=PROTOCOL,
            number=self._number,
            block=self._block,
            nonce=self._nonce,
            calibration={} if self._number == 0 else self._calibration.reported,
        )
        if self._after is None:
            self._hand_out(samples)
        else:
            self._solo(REFERENCE, 0)
        self._pipe.order(event="end")

    def _hand_out(self, samples: int) -> None:
        """Let the arms work through the samples, and each alone at a drawn moment."""
        solo_before = {arm: self._draw.randrange(samples + 1) for arm in self._plan.arms}
        for sample in range(samples + 1):
            for arm in self._shuffled(arm for arm in self._plan.arms if solo_before[arm] == sample):
                if self._plan.solo_s > 0:
                    self._solo(arm, min(sample, samples - 1))
            if sample < samples:
                self._sample(sample)

    def _sample(self, sample: int) -> None:
        """Let both arms work on one sample, turn by turn, until both are through."""
        waiting = set(self._plan.arms)
        if self._plan.prefill:
            waiting -= {arm for arm in self._shuffled(waiting) if self._turn(arm, sample, 1).over}
        while waiting:
            shortest_s, whole = float("inf"), True
            for arm in self._shuffled(waiting):
                turn = self._turn(arm, sample, None if self._plan.unit == "samples" else self._calibration.turn_tokens)
                shortest_s = min(shortest_s, turn.done_s - turn.go_s)
                whole = whole and not turn.over
                waiting -= {arm} if turn.over else set()
            tokens = self._calibration.turn_tokens
            if self._number == 0 and whole and shortest_s < self._plan.turn_least_s and tokens < _TOKENS_MAX:
                self._calibration.turn_tokens = 2 * tokens

    def _turn(self, arm: str, sample: int, tokens: int | None) -> Turn:
        go_s, done_s, answer = self._ask(arm, sample, tokens=tokens, seconds=None)
        over = answer.get("over") is True
        if tokens is None and not over:
            raise TurnPipeError("a turn over a whole sample ended before its sample")
        turn = Turn(
            number=self._turn_number,
            arm=arm,
            sample=sample,
            go_s=go_s,
            done_s=done_s,
            tokens=answer["tokens"],
            over=over,
            cpu_s=_processor_s(answer.get("cpu_s")),
        )
        self._turns.append(turn)
        return turn

    def _solo(self, arm: str, sample: int) -> None:
        before, gpu_before_s = work.read(self._root), self._gpu_s()
        go_s, done_s, answer = self._ask(arm, sample, tokens=None, seconds=self._plan.solo_s)
        cpu_s, waited_s = work.between(before, work.read(self._root))
        gpu_after_s = self._gpu_s()
        if done_s - go_s < self._plan.solo_s:
            raise TurnPipeError(f"a solo stretch lasted {done_s - go_s:.3f} s, at least {self._plan.solo_s} were asked")
        self._solos.append(
            SoloStretch(
                number=self._turn_number,
                arm=arm,
                sample=sample,
                go_s=go_s,
                done_s=done_s,
                tokens=answer["tokens"],
                cpu_s=cpu_s,
                waited_s=waited_s,
                source=work.LINUX if sys.platform == "linux" else work.ELSEWHERE,
                gpu_s=None if gpu_before_s is None or gpu_after_s is None else max(0.0, gpu_after_s - gpu_before_s),
                gpu_source=self._gpu if isinstance(self._gpu, str) else self._gpu.source,
            )
        )

    def _gpu_s(self) -> float | None:
        """Return for how long the processes of the launch have kept the accelerators busy so far."""
        if isinstance(self._gpu, str):
            return None
        return self._gpu.read(work.members(self._root)).own_s

    def _ask(
        self, arm: str, sample: int, *, tokens: int | None, seconds: float | None
    ) -> tuple[float, float, dict[str, Any]]:
        """Send one order and wait for its answer; return both stamps and the answer."""
        if self._turn_number >= TURNS_MAX:
            raise TurnPipeError(f"more than {TURNS_MAX} turns in one launch")
        self._turn_number += 1
        go_s = self._pipe.order(
            event="go", turn=self._turn_number, arm=arm, sample=sample, tokens=tokens, seconds=seconds
        )
        answer, done_s = self._pipe.answer("done")
        self._alive()
        count = answer.get("tokens")
        if answer.get("turn") != self._turn_number or type(count) is not int or not 0 <= count <= _ANSWERED_MAX:
            raise TurnPipeError(f"turn {self._turn_number} was answered by {str(answer)[:80]}")
        return go_s, done_s, answer

    def _shuffled(self, arms: Iterable[str]) -> list[str]:
        drawn = sorted(arms)
        self._draw.shuffle(drawn)
        return drawn


def _processor_s(value: object) -> float | None:
    """Return the processor time that an answer names, None where it names none.

    Raises:
        TurnPipeError: it is no number of seconds.
    """
    if value is None:
        return None
    if type(value) not in {int, float} or not 0.0 <= float(str(value)) < float("inf"):
        raise TurnPipeError(f"cpu_s is {str(value)[:40]}, not seconds")
    return float(str(value))
