"""Take turns that a supervisor hands out: the program's side of the turn pipe. Standard library only.

One file without imports of the package: a program of your own may import or copy it. The protocol is in docs/turns.md.

    turns = Turns.open()                                # None when nobody hands out turns
    launch = turns.ready(samples=12)                    # models are loaded, both arms are warm
    for order in turns:
        tokens, over = work(order.arm, order.sample, until=order.tokens, seconds=order.seconds)
        turns.done(tokens, over=over)
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PROTOCOL = 1
ORDERS_NAME, ANSWERS_NAME = "KAKEYA_TURN_ORDERS", "KAKEYA_TURN_ANSWERS"


class TurnsError(Exception):
    """The supervisor's side of the pipe broke the protocol or went away."""


@dataclass(frozen=True)
class TurnsOfLaunch:
    """What a program is told of its launch, once it is ready.

    Attributes:
        number: 0 is the launch that calibrates and does not count.
        block: which block of the pinned set to run.
        nonce: 64 hexadecimal digits, made after this process had started; draw orders from it and nothing else.
        calibration: what the program said of itself in launch 0; empty there.
    """

    number: int
    block: int
    nonce: str
    calibration: Mapping[str, Any]


@dataclass(frozen=True)
class TurnOrder:
    """One turn.

    Attributes:
        arm: whose turn it is.
        sample: which sample of the launch, counted from 0; each arm goes through all of them in order.
        tokens: the turn ends at the first step that reaches the next multiple of this many tokens of its sample;
            None: it ends with its sample.
        seconds: a solo stretch of at least this many seconds, over prompts of this launch; None for a turn.
    """

    arm: str
    sample: int
    tokens: int | None
    seconds: float | None


class Turns:
    """Both ends that this process has of the turn pipe."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders = os.fdopen(orders, "rb")
        self._answers = answers
        self._number = 0
        os.set_inheritable(orders, False)
        os.set_inheritable(answers, False)

    @classmethod
    def open(cls, environ: Mapping[str, str] = os.environ) -> Turns | None:
        """Return the pipe that the environment names; None when there is none."""
        if ORDERS_NAME not in environ or ANSWERS_NAME not in environ:
            return None
        return cls(int(environ[ORDERS_NAME]), int(environ[ANSWERS_NAME]))

    def ready(self, samples: int, calibration: Mapping[str, Any] | None = None) -> TurnsOfLaunch:
        """Say that both arms are loaded and warm; return what this launch is.

        Args:
            samples: how many samples each arm goes through in this launch.
            calibration: in launch 0, what later launches are to be told; at most 2 KB of JSON.

        Raises:
            TurnsError: the supervisor speaks another protocol, or went away.
        """
        self._say(event="ready", protocol=PROTOCOL, samples=samples, calibration=dict(calibration or {}))
        message = self._hear()
        if message.get("event") != "launch" or message.get("protocol") != PROTOCOL:
            raise TurnsError(f"expected the launch of protocol {PROTOCOL}, got {message}")
        return TurnsOfLaunch(message["number"], message["block"], message["nonce"], message["calibration"])

    def __iter__(self) -> Iterator[TurnOrder]:
        """Yield orders until the launch is over; answer each with `done` before asking for the next.

        Raises:
            TurnsError: the supervisor went away.
        """
        while (message := self._hear()).get("event") == "go":
            self._number = message["turn"]
            yield TurnOrder(message["arm"], message["sample"], message["tokens"], message["seconds"])
        self._orders.close()

    def done(self, tokens: int, *, over: bool) -> None:
        """End a turn: all its work, queued work of the device included, is done.

        Args:
            tokens: committed in this turn.
            over: whether the arm's sample ended with it; ignored for a solo stretch.
        """
        self._say(event="done", turn=self._number, tokens=tokens, over=over)

    def _say(self, **fields: object) -> None:
        os.write(self._answers, json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def _hear(self) -> dict[str, Any]:
        line = self._orders.readline()
        if not line:
            raise TurnsError("the supervisor went away")
        message: dict[str, Any] = json.loads(line)
        return message
