"""A trial before the first decode refuses recordings that differ, do not pay or cannot be made."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch

from engine.backends.torch.graphs.recording import NotRecordableError, Outputs, Run
from engine.backends.torch.graphs.slots import Slots
from engine.backends.torch.trial import refusal
from engine.drafters.none import NoDrafter
from tests.fakes.tape import Tape
from tests.fakes.tiny_torch import CONFIGS
from tests.integration.engine_torch.replaying import BLOCK, run
from tests.support.decoding import prompt_of, tokens_of

pytestmark = pytest.mark.ci


class TrialClock:
    """A millisecond for each reading, and what a recorder adds."""

    eager = True

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        self.ns += 1_000_000
        return self.ns

    def host_ns(self) -> int:
        return self.now_ns()


class Altered(Tape):
    """Repeats what was recorded, taking ``extra_ns`` longer and adding ``shift`` to every output."""

    def __init__(self, clock: TrialClock, extra_ns: int, shift: float) -> None:
        super().__init__()
        self._clock, self._extra_ns, self._shift = clock, extra_ns, shift

    def record(self, run: Run) -> Run:
        repeated = super().record(run)

        def altered() -> Outputs:
            self._clock.ns += self._extra_ns
            return tuple(output + self._shift for output in repeated())

        return altered


@pytest.mark.parametrize(
    ("extra_ns", "shift", "must_pay", "pattern"),
    [
        (-500_000, 0.0, True, None),
        (500_000, 0.0, False, None),
        (500_000, 0.0, True, r"1\.50 times as long"),
        (-500_000, 0.1, False, "1 rows differ from plain ones"),
        (-500_000, float("nan"), True, "differ from plain ones by nan"),
    ],
)
def test_a_trial_refuses_recordings_that_differ_or_do_not_pay(
    backend: Any, folders: Any, answers: Any, extra_ns: int, shift: float, must_pay: bool, pattern: str | None
) -> None:
    clock = TrialClock()
    target = backend.load_target(folders / next(iter(CONFIGS)))
    target.slots = Slots(partial(Altered, clock, extra_ns, shift), BLOCK, smallest=64, room=0)
    message = refusal(target, clock, BLOCK, must_pay)
    assert message is None if pattern is None else message is not None and re.search(pattern, message)
    target.slots.refused = message
    steps, reasons = run(backend, target, NoDrafter(), prompt_of(12))
    assert tokens_of(steps) == answers(next(iter(CONFIGS)), prompt_of(12))
    assert list(reasons) == ([] if message is None else [message])


class Refusing(Tape):
    """Records nothing."""

    def record(self, run: Run) -> Run:
        raise NotRecordableError("the host is needed")


def test_a_trial_keeps_why_nothing_can_be_recorded(backend: Any, folders: Any) -> None:
    target = backend.load_target(folders / next(iter(CONFIGS)))
    target.slots = Slots(Refusing, BLOCK, smallest=64, room=0)
    assert refusal(target, TrialClock(), BLOCK, must_pay=True) == "the forward cannot be recorded: the host is needed"


def without_memory() -> Tape:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_recordings_that_no_memory_was_left_to_try_are_not_used_later(backend: Any, folders: Any) -> None:
    target = backend.load_target(folders / next(iter(CONFIGS)))
    target.slots = Slots(without_memory, BLOCK, smallest=64, room=0)
    assert refusal(target, TrialClock(), BLOCK, must_pay=False) == "there was no memory to try recorded forwards in"
