"""One launch whose turns a supervisor hands out: it says which arm goes on, and its stamps are the measurement.

A supervisor's sample is one prompt or, on a machine that is fast, several of them in sequence, so that it lasts. Its
first turn forwards all of its prompts, the others decode them one after the other.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.decoding.prompt import check_prompts
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement import arms
from engine.measurement.arms import ArmSettings
from engine.measurement.launch import (
    LaunchWorkload,
    arm_of,
    describe,
    environment,
    fallbacks,
    scored,
    top2_margin,
    with_margins,
)
from engine.measurement.measure import HeldSample, Instruments, Measured, SamplePlace
from engine.measurement.schedule import drawn
from engine.measurement.selection import Prompt
from engine.reports import Report, RunContext
from engine.reports.context import utc_now
from engine.reports.parts import CALIBRATION
from engine.stopping import Stopping
from engine.tokenizer import Tokenizer
from engine.turns import TurnOrder, Turns, TurnsOfLaunch

SAMPLE_LEAST_S = 0.3
"""What a sample is to last by its warm-up: half as much again as the gate asks, since a machine may be faster later."""
_SOLO_TOKENS = 8


@dataclass(frozen=True, slots=True)
class TurnsPlan:
    """What the launches of a series measure.

    Attributes:
        arms: Both of them, the baseline first.
        prompts: The whole pinned set: as many as all blocks have together.
        per_launch: Prompts of a block.
        seed: The run's nonce: blocks are drawn from it, the order within one from the launch's own.
        prompts_per_sample: As launch 0 found it; None in launch 0.
    """

    arms: tuple[str, ...]
    prompts: Sequence[Prompt]
    warmups: Sequence[Prompt]
    per_launch: int
    seed: str
    max_new_tokens: int
    stop_ids: frozenset[int]
    prompts_per_sample: int | None = None

    def block(self, launch: TurnsOfLaunch) -> list[Prompt]:
        """Return the prompts of a launch in its order.

        Raises:
            UsageError: If the launch is of a block that this set does not have.
        """
        every = drawn({prompt.id: prompt for prompt in self.prompts}, self.seed, "blocks")
        mine = every[launch.block * self.per_launch : (launch.block + 1) * self.per_launch]
        if len(mine) < self.per_launch:
            raise UsageError(
                f"launch {launch.number} is of block {launch.block}; {len(every)} prompts have blocks of "
                f"{self.per_launch}"
            )
        return drawn({prompt.id: prompt for prompt in mine}, launch.nonce, launch.number)


@dataclass
class ArmInTurns:
    """One arm and the sample it is in.

    Attributes:
        begin: Starts decoding a prompt on it.
        sample: Its prompts in progress; empty between samples.
        finished: Everything that came to its end, in order.
        whole: Whether a prompt that was begun is decoded to its end: another process does, and cannot be stopped.
    """

    begin: Callable[[Prompt], HeldSample]
    sample: list[tuple[Prompt, HeldSample]] = field(default_factory=list)
    finished: list[tuple[Prompt, HeldSample]] = field(default_factory=list)
    whole: bool = False

    def take(self, prompts: Sequence[Prompt], tokens: int | None) -> tuple[int, bool]:
        """Go on to the next multiple of ``tokens`` tokens of the sample; return how many came, and whether it ended."""
        before = self._have()
        if not self.sample:
            self.sample = [(prompt, self.begin(prompt)) for prompt in prompts]
            for _, running in self.sample:
                running.prefill()
        else:
            aim = None if tokens is None else (before // tokens + 1) * tokens
            for _, running in self.sample:
                if not running.over and (aim is None or self._have() < aim):
                    running.decode(None if aim is None else running.tokens + aim - self._have())
        decoded, over = self._have() - before, all(running.over for _, running in self.sample)
        if over:
            self.finished += self.sample
            self.sample = []
        return decoded, over

    def alone(self, prompts: Sequence[Prompt], seconds: float) -> int:
        """Decode prompts from their beginning for so many seconds; return the tokens. The sample it was in waits."""
        tokens, began = 0, time.monotonic()
        while True:
            for prompt in prompts:
                running = self.begin(prompt)
                running.prefill()
                while not running.over:
                    if not self.whole and time.monotonic() - began >= seconds:
                        return tokens + running.tokens
                    running.decode(None if self.whole else running.tokens + _SOLO_TOKENS)
                tokens += running.tokens
                if time.monotonic() - began >= seconds:
                    return tokens

    def _have(self) -> int:
        return sum(running.tokens for _, running in self.sample)


def arms_in_turns(
    engine: Engine, plan: TurnsPlan, settings: ArmSettings, instruments: Instruments
) -> dict[str, ArmInTurns]:
    """Return the plan's arms, cold.

    Raises:
        PromptError: If a prompt and its budget do not fit the target.
    """
    used = (prompt.ids for prompt in (*plan.warmups, *plan.prompts))
    check_prompts(used, engine.target.info, plan.max_new_tokens)

    def begin(arm: str) -> Callable[[Prompt], HeldSample]:
        def start(prompt: Prompt) -> HeldSample:
            stopping = Stopping(budget_tokens=plan.max_new_tokens, stop_ids=plan.stop_ids)
            return HeldSample(arms.start(engine, arm, settings, prompt.ids, stopping), prompt, instruments)

        return start

    return {arm: ArmInTurns(begin(arm)) for arm in plan.arms}


def warmed_up(arms_by_name: Mapping[str, ArmInTurns], plan: TurnsPlan) -> int:
    """Decode every warm-up on every arm; return how many prompts a sample has to have to last."""
    for arm in arms_by_name.values():
        for prompt in plan.warmups:
            _whole(arm, prompt)
    shortest_s = min(running.decode_s for arm in arms_by_name.values() for _, running in arm.finished)
    return min(plan.per_launch, math.ceil(SAMPLE_LEAST_S / max(shortest_s, 1e-3)))


def _whole(arm: ArmInTurns, prompt: Prompt) -> None:
    arm.take([prompt], 1)
    while arm.sample:
        arm.take([prompt], None)


def take_turns(
    turns: Turns,
    arms_by_name: Mapping[str, ArmInTurns],
    plan: TurnsPlan,
    calibration: Mapping[str, object],
    heard: Callable[[str], None] = lambda _: None,
) -> TurnsOfLaunch:
    """Say that both arms are warm, take every turn of the launch, and return what launch it was.

    Nothing that is said meanwhile holds a time or a ratio: who watches a run must not learn when to end it.
    """
    size = plan.prompts_per_sample or 1
    launch = turns.ready(-(-plan.per_launch // size), calibration)
    prompts = plan.block(launch)
    samples = [prompts[start : start + size] for start in range(0, len(prompts), size)]
    for order in turns:
        arm, mine = arms_by_name[order.arm], samples[order.sample % len(samples)]
        if order.seconds is not None:
            turns.done(arm.alone(_from(prompts, order, size), order.seconds), over=False)
            continue
        tokens, over = arm.take(mine, order.tokens)
        turns.done(tokens, over=over)
        if over:
            heard(f"launch {launch.number}: {order.arm} decoded {', '.join(prompt.id for prompt in mine)}")
    return launch


def decode_alone(
    turns: Turns, engine: Engine, plan: TurnsPlan, settings: ArmSettings, instruments: Instruments
) -> None:
    """Be the reference of a launch: the library's own loop over the launch's prompts, alone, as long as is asked."""
    arms_by_name = arms_in_turns(engine, plan, settings, instruments)
    for arm in arms_by_name.values():
        _whole(arm, plan.warmups[0])
    launch = turns.ready(1)
    prompts = plan.block(launch)
    for order in turns:
        (arm,) = arms_by_name.values()
        turns.done(arm.alone(prompts, order.seconds or 0.0), over=True)


def _from(prompts: Sequence[Prompt], order: TurnOrder, size: int) -> list[Prompt]:
    place = order.sample * size % len(prompts)
    return [*prompts[place:], *prompts[:place]]


def part_in_turns(
    turns: Turns,
    engine: Engine,
    workload: LaunchWorkload,
    context: RunContext,
    heard: Callable[[str], None] = lambda _: None,
) -> tuple[Report, int]:
    """Measure one launch; return its part and its number, 0 for the launch that calibrates and leaves no part."""
    clock, plan = engine.backend.clock, _plan(engine, workload, context)
    started_at, began_ns = utc_now(), clock.host_ns()
    arms_by_name = arms_in_turns(
        engine, plan, workload.settings, Instruments.of(engine.backend, Tokenizer(engine.folder))
    )
    size = warmed_up(arms_by_name, plan)
    calibration: dict[str, object] = {"prompts_per_sample": size, "depth": workload.depth.get("tokens")}
    plan = plan if plan.prompts_per_sample else replace(plan, prompts_per_sample=size)
    launch = take_turns(turns, arms_by_name, plan, calibration, heard)
    if launch.number == 0:
        write_calibration(context.out, calibration)
    prompts_by_id = {prompt.id: prompt for prompt in (*plan.prompts, *plan.warmups)}
    finished = list(placed(plan, arms_by_name, max(0, launch.number - 1)))
    prompts = {name: prompt.ids for name, prompt in prompts_by_id.items()}
    samples = with_margins(finished, prompts, plan.arms[0], lambda ids: top2_margin(engine, ids, workload.settings))
    made = tuple(arm_of(arm, arms.code_path(engine, arm), samples) for arm in plan.arms)
    return Report(
        kind=workload.kind,
        config=describe(engine, workload, plan.stop_ids),
        environment=environment(engine.backend),
        started_at=started_at,
        ended_at=utc_now(),
        wall_s=(clock.host_ns() - began_ns) / 1e9,
        arms=tuple(replace(arm, samples=scored(arm.samples, prompts_by_id, workload.score)) for arm in made),
        fallbacks=tuple(fallbacks(finished)),
    ), launch.number


def be_reference(turns: Turns, engine: Engine, workload: LaunchWorkload, context: RunContext) -> None:
    """Decode the prompts of a launch with the library's own loop, alone, in a process of its own."""
    plan = _plan(engine, workload, context)
    decode_alone(turns, engine, plan, workload.settings, Instruments.of(engine.backend, Tokenizer(engine.folder)))


def _plan(engine: Engine, workload: LaunchWorkload, context: RunContext) -> TurnsPlan:
    profile, calibration = workload.profile, read_calibration(context.out)
    whole, warmups = workload.prompts.select(0, 1, profile.prompts_per_launch * profile.blocks, profile.warmups)
    return TurnsPlan(
        arms=profile.arms,
        prompts=whole,
        warmups=warmups,
        per_launch=profile.prompts_per_launch,
        seed=context.nonce,
        max_new_tokens=profile.max_new_tokens,
        stop_ids=frozenset(engine.target.info.stop_ids if workload.stop == "natural" else ()),
        prompts_per_sample=calibration["prompts_per_sample"] if calibration else None,
    )


def placed(plan: TurnsPlan, arms_by_name: Mapping[str, ArmInTurns], number: int) -> Iterator[Measured]:
    """Yield the samples of a launch, counted from 0, prompt by prompt, each on every arm, warm-ups first."""
    rows = zip(*(arms_by_name[arm].finished for arm in plan.arms), strict=True)
    index = 0
    for place, row in enumerate(rows):
        for arm, (_, running) in zip(plan.arms, row, strict=True):
            yield running.finished(SamplePlace(number, index, arm, is_warmup=place < len(plan.warmups)))
            index += 1


def read_calibration(out: Path) -> dict[str, Any] | None:
    """Return what launch 0 of this run's series found; None before it has."""
    path = out / CALIBRATION
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_calibration(out: Path, calibration: Mapping[str, object]) -> None:
    """Write down what launch 0 found, for those that follow."""
    (out / CALIBRATION).parent.mkdir(parents=True, exist_ok=True)
    (out / CALIBRATION).write_text(json.dumps(calibration), encoding="utf-8")
