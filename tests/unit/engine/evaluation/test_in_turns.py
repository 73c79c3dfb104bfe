"""An arm goes on where it was held, and the steps of a report say how many tokens each of its turns had."""

from __future__ import annotations

import json
import os
import random
import threading

import pytest

from bridge.gate.rules.turns import expected_turns
from engine.errors import UsageError
from engine.measurement.arms import Running
from engine.measurement.in_turns import ArmInTurns, TurnsPlan, take_turns
from engine.measurement.measure import HeldSample, Instruments, SamplePlace
from engine.measurement.schedule import drawn
from engine.measurement.selection import Prompt
from engine.reports import SamplePipe, token_digest
from engine.turns import Turns, TurnsOfLaunch
from engine.types import StopReason
from tests.unit.engine.evaluation.test_measure import TickingClock, step

BUDGET = 40


def prompt(number: int) -> Prompt:
    ids = (5, 6, number)
    return Prompt(f"p{number}", "structured", ids, token_digest(ids))


def running(clock: TickingClock, accepted: list[int], budget: int = BUDGET) -> Running:
    """Return a decode of so many steps: 10 ms for the prompt, 4 ms a step."""

    def steps():
        clock.work(10)
        left = budget - 1
        yield step((1,), prefill=True, stop=None if left else StopReason.BUDGET)
        for count in accepted:
            clock.work(4)
            tokens = tuple(range(2, 2 + min(count + 1, left)))
            left -= len(tokens)
            yield step(tokens, drafted=3, accepted=len(tokens) - 1, stop=None if left else StopReason.BUDGET)
            if not left:
                return

    return Running(steps(), lambda: 50, lambda: 7)


def held(clock: TickingClock, accepted: list[int], number: int = 0) -> HeldSample:
    instruments = Instruments(clock, SamplePipe(None), lambda: 999, lambda tokens: f"{len(tokens)} tokens")
    return HeldSample(running(clock, accepted), prompt(number), instruments)


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("turn_tokens", [1, 8, 16, 100])
def test_the_steps_say_how_many_tokens_each_turn_had(group, turn_tokens):
    rng, clock = random.Random(group * turn_tokens), TickingClock()
    accepted = {f"p{number}": [rng.randrange(4) for _ in range(BUDGET)] for number in range(group)}
    arm = ArmInTurns(lambda item: held(clock, accepted[item.id], int(item.id[1:])))
    prompts = [prompt(number) for number in range(group)]

    turns = [arm.take(prompts, 1)]
    while not turns[-1][1]:
        turns.append(arm.take(prompts, turn_tokens))

    samples = [sample.finished(SamplePlace(0, 0, "speculative", is_warmup=False)).sample for _, sample in arm.finished]
    rows = [
        {"output_tokens": sample.output_tokens, "accepted_per_step": list(sample.accepted_per_step)}
        for sample in samples
    ]
    assert [tokens for tokens, _ in turns] == expected_turns(rows, turn_tokens)
    assert sum(tokens for tokens, _ in turns) == group * BUDGET
    assert arm.sample == []


def test_only_the_turns_of_a_sample_are_its_time():
    clock = TickingClock()
    sample = held(clock, [3] * BUDGET)
    sample.prefill()
    while not sample.over:
        clock.work(1000)
        sample.decode(sample.tokens + 8)
    stages = sample.finished(SamplePlace(0, 0, "speculative", is_warmup=False)).sample.stages
    assert (stages.prefill_s, stages.decode_s, stages.total_s) == pytest.approx((0.010, 0.040, 0.050))


def test_a_sample_that_is_held_is_no_sample():
    sample = held(TickingClock(), [3] * BUDGET)
    sample.prefill()
    with pytest.raises(ValueError, match="was held after 1 tokens"):
        sample.finished(SamplePlace(0, 0, "speculative", is_warmup=False))


def plan(prompts: int = 6, per_launch: int = 2) -> TurnsPlan:
    return TurnsPlan(
        arms=("autoregressive", "speculative"),
        prompts=[prompt(number) for number in range(prompts)],
        warmups=[prompt(99)],
        per_launch=per_launch,
        seed="run",
        max_new_tokens=BUDGET,
        stop_ids=frozenset(),
    )


def test_blocks_are_drawn_from_the_runs_nonce_and_orders_from_the_launchs():
    turns = plan()
    blocks = [turns.block(TurnsOfLaunch(1 + block, block, "launch", {})) for block in range(3)]
    every = [item.id for block in blocks for item in block]
    assert sorted(every) == [f"p{number}" for number in range(6)]
    drawn_prompts = drawn({item.id: item for item in turns.prompts}, "run", "blocks")[2:4]
    assert blocks[1] == drawn({item.id: item for item in drawn_prompts}, "launch", 2)
    assert turns.block(TurnsOfLaunch(7, 1, "launch", {})) in (blocks[1], blocks[1][::-1])
    with pytest.raises(UsageError, match="block 3; 6 prompts have blocks of 2"):
        turns.block(TurnsOfLaunch(1, 3, "launch", {}))


def test_a_launch_takes_what_it_is_told_and_says_no_time():
    orders, answers = os.pipe(), os.pipe()
    clock, lines, replies = TickingClock(), [], []
    arms = {arm: ArmInTurns(lambda item: held(clock, [1] * BUDGET, int(item.id[1:]))) for arm in plan().arms}

    def supervise():
        with os.fdopen(answers[0], "rb") as heard, os.fdopen(orders[1], "wb", 0) as says:
            assert json.loads(heard.readline())["samples"] == 2
            first = {"event": "launch", "protocol": 1, "number": 1, "block": 0, "nonce": "n", "calibration": {}}
            requests = [
                {"arm": arm, "sample": s, "tokens": t} for s in (0, 1) for t in (1, None) for arm in plan().arms
            ]
            says.write(json.dumps(first).encode() + b"\n")
            for number, request in enumerate(requests):
                order = {"event": "go", "turn": number, "seconds": None} | request
                says.write(json.dumps(order).encode() + b"\n")
                replies.append(json.loads(heard.readline()))
            says.write(b'{"event":"end"}\n')

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    launch = take_turns(Turns(orders[0], answers[1]), arms, plan(), {}, lines.append)
    supervisor.join()
    os.close(answers[1])
    assert launch.number == 1
    assert [(reply["tokens"], reply["over"]) for reply in replies] == [(1, False)] * 2 + [(39, True)] * 2 + [
        (1, False)
    ] * 2 + [(39, True)] * 2
    assert len(lines) == 4
    assert not any(" s" in line.replace("speculative", "") for line in lines)
