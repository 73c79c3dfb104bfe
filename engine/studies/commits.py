"""Two commits on one machine: by turns that a supervisor hands out, or in drawn order with a second pass.

A launch is a process that decodes nothing: it asks one child per arm, each with one checkout's code, and takes all
times itself, so that nothing of the measured code holds the clock.

Where turns are handed out a child decodes a whole prompt in its turn, and launches are as many as their rule says.
Otherwise base and base again are two children of the same checkout: what a start of its own changes is in the noise
floor. The second pass repeats the first one's launches with the same prompts in other orders, and only when the first
found the head slower by more than the margin.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.errors import UsageError
from engine.isolation.checkouts import Opening, Side
from engine.isolation.compared_commits import KIND, Commits, ComparedWork, check, open_sides, report_of
from engine.loading import resolve_model
from engine.measurement.arms import BASE, BASE_AGAIN, HEAD
from engine.measurement.in_turns import (
    ArmInTurns,
    TurnsPlan,
    placed,
    read_calibration,
    take_turns,
    warmed_up,
    write_calibration,
)
from engine.measurement.launch import sequence
from engine.measurement.measure import HeldSample, HostClock, Instruments, Measured, SamplePlace, measure_sample
from engine.measurement.ratio import paired_ratio
from engine.measurement.schedule import in_turns, profile_of
from engine.measurement.selection import Prompt, load_prompts
from engine.options import (
    DEFAULT_DEPTH,
    DEFAULT_TARGET,
    add_chunk_option,
    add_launch_options,
    add_out_option,
    check_launch,
    chosen_drafter,
    positive,
)
from engine.reports import Report, RunContext, Sample, SamplePipe, write_report
from engine.reports.context import utc_now
from engine.reports.parts import merge, part_name, read_parts, remove_parts
from engine.reports.summary import Summary, claims, summarise
from engine.studies.command import StudyCommand, show
from engine.tokenizer import Tokenizer
from engine.turns import Turns

ARMS = {"smoke": (BASE, HEAD), "claim": (BASE, BASE_AGAIN, HEAD)}


@dataclass(frozen=True, slots=True)
class CommitLaunch:
    """Which launch this is.

    Attributes:
        number: as it counts in the report: the second pass follows the first.
        share: which part of the prompts it measures, of `launches`.
    """

    number: int
    share: int
    launches: int
    heard: Callable[[Sample], None] = lambda _: None


def run_launch(commits: Commits, work: ComparedWork, context: RunContext, turn: CommitLaunch) -> Report:
    """Measure one launch and return its part.

    Raises:
        UsageError: bad commits, too few prompts, or a side that imported another engine.
        PromptError: a prompt and the budget do not fit the target.
        ChildError: a side could not load the models or decode.
        ModelMismatchError: the two codes do not see the same models.
    """
    check(commits)
    clock, profile = HostClock(), work.profile
    began = utc_now(), clock.host_ns()
    measured, warmups = work.prompts.select(turn.share, turn.launches, profile.prompts_per_launch, profile.warmups)
    with ExitStack() as stack:
        sides, facts = open_sides(stack, commits, work, (*warmups, *measured))
        stop_ids = frozenset(facts["target"]["stop_ids"])
        plan = sequence(profile.arms, measured, warmups, context.nonce, turn.number)
        decode = _Decoding(sides, profile.max_new_tokens, stop_ids)
        doors = _Doors(clock, SamplePipe(context.pipe_fd), work.tokenizer, turn.heard)
        doors.pipe.plan(len(plan))
        finished = [
            _measure(decode, doors, prompt, SamplePlace(turn.number, index, arm, is_warmup))
            for index, (prompt, arm, is_warmup) in enumerate(plan)
        ]
        return report_of(
            commits, work, sides, prompts=(*measured, *warmups), finished=finished, began=began, launches=turn.launches
        )


def part_in_turns(
    turns: Turns,
    commits: Commits,
    work: ComparedWork,
    context: RunContext,
    heard: Callable[[str], None] = lambda _: None,
) -> tuple[Report, int]:
    """Measure one launch whose turns are handed out; return its part and its number, 0 for the one that calibrates.

    Raises:
        UsageError, PromptError, ChildError, ModelMismatchError: As of `run_launch`.
    """
    check(commits)
    began, profile, known = (utc_now(), HostClock().host_ns()), work.profile, read_calibration(context.out)
    whole, warmups = work.prompts.select(0, 1, profile.prompts_per_launch * profile.blocks, profile.warmups)
    with ExitStack() as stack:
        sides, facts = open_sides(stack, commits, work, (*warmups, *whole))
        plan = TurnsPlan(
            arms=profile.arms,
            prompts=whole,
            warmups=warmups,
            per_launch=profile.prompts_per_launch,
            seed=context.nonce,
            max_new_tokens=profile.max_new_tokens,
            stop_ids=frozenset(facts["target"]["stop_ids"]),
            prompts_per_sample=known["prompts_per_sample"] if known else None,
        )
        found = {arm: ArmInTurns(_starting(sides[arm], plan, work.tokenizer), whole=True) for arm in plan.arms}
        size = warmed_up(found, plan)
        plan = replace(plan, prompts_per_sample=plan.prompts_per_sample or size)
        calibration: dict[str, object] = {"prompts_per_sample": size}
        launch = take_turns(turns, found, plan, calibration, heard)
        if launch.number == 0:
            write_calibration(context.out, calibration)
        finished = list(placed(plan, found, max(0, launch.number - 1)))
        return report_of(
            commits, work, sides, prompts=(*whole, *warmups), finished=finished, began=began
        ), launch.number


def _starting(side: Side, plan: TurnsPlan, tokenizer: Tokenizer) -> Callable[[Prompt], HeldSample]:
    instruments = Instruments(HostClock(), SamplePipe(None), side.allocator_active_bytes, tokenizer.decode)

    def start(prompt: Prompt) -> HeldSample:
        return HeldSample(side.start(prompt.ids, plan.max_new_tokens, plan.stop_ids), prompt, instruments)

    return start


def is_first_pass_slow(parts: Sequence[Mapping[str, Any]], margin: float) -> bool:
    """Say whether the launches of the first pass found the head slower by more than the margin.

    Raises:
        UsageError: they hold too little to tell.
    """
    reference: dict[str, list[float]] = {}
    head: dict[str, list[float]] = {}
    for part in parts:
        for arm in part["arms"]:
            times = head if arm["role"] == "candidate" else reference
            for sample in arm["samples"]:
                if not sample["is_warmup"]:
                    times.setdefault(sample["prompt_id"], []).append(sample["stages"]["decode_s"])
    means = [{prompt: sum(values) / len(values) for prompt, values in times.items()} for times in (reference, head)]
    common = [prompt for prompt in means[0] if prompt in means[1]]
    ratio = paired_ratio(*([times[prompt] for prompt in common] for times in means))
    return ratio.high < 1.0 - margin


def passes(launches: int, parts: int) -> list[list[int]]:
    """Return the launches of each pass.

    Raises:
        UsageError: a pass is incomplete.
    """
    if parts not in {launches, 2 * launches}:
        raise UsageError(f"{parts} launches measured; expected {launches}, or {2 * launches} with the second pass")
    return [list(range(start, start + launches)) for start in range(0, parts, launches)]


@dataclass(frozen=True, slots=True)
class _Decoding:
    sides: Mapping[str, Side]
    budget: int
    stop_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Doors:
    clock: HostClock
    pipe: SamplePipe
    tokenizer: Tokenizer
    heard: Callable[[Sample], None]


def _measure(decoding: _Decoding, doors: _Doors, prompt: Prompt, place: SamplePlace) -> Measured:
    side = decoding.sides[place.arm]
    instruments = Instruments(doors.clock, doors.pipe, side.allocator_active_bytes, doors.tokenizer.decode)
    item = measure_sample(
        lambda: side.start(prompt.ids, decoding.budget, decoding.stop_ids), prompt, place, instruments
    )
    doors.heard(item.sample)
    return item


def options(parser: argparse.ArgumentParser) -> None:
    """Add what is compared, and which launch this is."""
    parser.add_argument("--base", required=True, help="commit of the checkout in FOLDER/base")
    parser.add_argument("--head", required=True, help="commit of the checkout in FOLDER/head")
    parser.add_argument("--folder", type=Path, default=Path(), help="holds both checkouts (default: here)")
    parser.add_argument("--margin", type=float, default=0.05, help="slower by more than this share (default: 0.05)")
    parser.add_argument("--backend", choices=("mlx", "torch"), default="mlx", help="array library (default: mlx)")
    parser.add_argument(
        "--depth", type=positive, default=DEFAULT_DEPTH, help="drafted tokens per step (default: %(default)s)"
    )
    parser.add_argument("--set", default="code-structured", help="prompt set or file (default: %(default)s)")
    parser.add_argument("--profile", choices=tuple(ARMS), help="only by hand: how much to measure")
    parser.add_argument("--max-new", type=positive, help="token budget (default: the profile's)")
    add_chunk_option(parser)
    add_launch_options(parser)
    parser.add_argument("--confirm", action="store_true", help="a launch of the second pass, if the first was slow")
    add_out_option(parser)


def measure(options: argparse.Namespace) -> None:
    """Measure one launch and write its part, unless it is to confirm and there is nothing to confirm.

    Raises:
        UsageError: If the commits, the margin or the launch cannot be used.
    """
    turns = Turns.open()
    if turns is None:
        check_launch(options)
    context = RunContext.current(out=options.out, profile=options.profile)
    commits = Commits(options.base, options.head, options.folder.resolve(), options.margin)
    check(commits)
    number = options.launch
    if options.confirm and turns is None:
        first = read_parts(context.out, {KIND})[: options.launches]
        if not is_first_pass_slow(first, options.margin):
            print(f"launch {options.launch + 1} of {options.launches}: the first pass is not slow, nothing to confirm")
            return
        number += options.launches
    target = resolve_model(os.environ.get("KAKEYA_TARGET") or DEFAULT_TARGET)
    named = chosen_drafter(None, target)
    drafter = named if named in {None, "ngram"} else str(resolve_model(str(named)))
    opening = Opening(options.backend, str(target), drafter, options.depth, options.prefill_chunk)
    tokenizer = Tokenizer(target)
    profile = profile_of(context.profile, ARMS, options.max_new)
    profile = profile if turns is None else in_turns(profile)
    prompts = load_prompts(options.set, tokenizer, target.name).lasting(profile.max_new_tokens)
    work = ComparedWork(opening, prompts, profile, tokenizer)
    if turns is not None:
        part, number = part_in_turns(turns, commits, work, context, partial(print, flush=True))
        if number > 0:
            write_report(part, context, part_name(number - 1))
        return
    word = "second pass, launch" if options.confirm else "launch"
    print(f"{word} {options.launch + 1} of {options.launches}: {commits.base[:12]} and {commits.head[:12]}", flush=True)
    turn = CommitLaunch(number, options.launch, options.launches, show)
    part = run_launch(commits, work, context, turn)
    write_report(part, context, part_name(number))


def assemble_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of joining."""
    parser.add_argument("--report", default="report.json", help="name of the report (default: %(default)s)")
    parser.add_argument("--profile", choices=tuple(ARMS), help="only by hand: the profile of the launches")
    add_out_option(parser)


def assemble(options: argparse.Namespace) -> tuple[Summary, int]:
    """Join the launches of both passes, write the report and return its summary and the number of passes.

    Raises:
        UsageError: If launches are missing or ran other code.
    """
    context = RunContext.current(out=options.out, profile=options.profile)
    parts = read_parts(context.out, {KIND})
    if any(part["rows"] != parts[0]["rows"] for part in parts):
        raise UsageError(
            "launches of one run differ in the code they ran; expected the same two checkouts in all of them"
        )
    first, stamped = parts[0]["rows"], read_calibration(context.out) is not None
    every = sorted({sample["launch"] for part in parts for arm in part["arms"] for sample in arm["samples"]})
    counted = [every] if stamped else passes(first["launches"], len(parts))
    joined = replace(merge(parts), rows={"passes": counted, "trees": first["trees"]})
    summary = summarise(joined)
    # The ratio of turns is the runner's, over launches: the report says nothing of it.
    stated = () if stamped else claims(joined, summary)
    write_report(replace(joined, claims=stated), context, options.report)
    remove_parts(context.out)
    return summary, len(counted)


def report(found: tuple[Summary, int]) -> None:
    """Print the ratio of both codes."""
    summary, count = found
    if summary.ratio is not None:
        word = "one pass" if count == 1 else "two passes"
        print(f"base / head decode time: {summary.ratio:.3f}x over {summary.compared} prompts, {word}")
        print("the gate says what may be said of it")


LAUNCH = StudyCommand(
    "Measure one launch: every prompt with the code of both checkouts, by turns that a supervisor hands out or in an "
    "order drawn from the run's nonce; this process asks and takes the times, a child per arm decodes.",
    options,
    measure,
)
ASSEMBLE = StudyCommand(
    "Join the launches of both passes; exit 0 when the report is written and the parts are gone.",
    assemble_options,
    assemble,
    report,
)
