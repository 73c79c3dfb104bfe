"""What a drafter elsewhere is worth: plain decoding, one arm for each round-trip time, and the drafter here.

The controller chooses at each step, and waits only where it has measured that waiting is faster. Each arm's link is a
process that delays what passes it. A launch is a process; ``--assemble`` joins them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.decoding.controller import ControlledDepth
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement.arms import SPECULATIVE, ArmSettings
from engine.measurement.launch import LaunchWorkload, describe
from engine.measurement.measure import Instruments
from engine.measurement.schedule import Profile, balanced_orders, drawn, every_order
from engine.measurement.selection import load_prompts
from engine.measurement.study import Study
from engine.options import (
    add_launch_options,
    add_model_options,
    add_report_options,
    check_launch,
    counts,
    longest_draft,
    open_selected,
    positive,
)
from engine.reports import Report, RunContext, write_report
from engine.reports.parts import merge, part_name, read_parts, remove_parts
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand, show
from engine.studies.remote_arms import (
    IN_PROCESS,
    LOCAL,
    LOCAL_AGAIN,
    DistributedPlan,
    DraftingArm,
    connections,
    run_distributed,
)
from engine.tokenizer import Tokenizer

KIND = "distributed_bench"
PROFILES = {"smoke": (6, 1, 32), "claim": (12, 2, 256)}
"""Prompts of a launch at least, warm-ups and tokens."""
PATIENCE_S = 5.0


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, the round-trip times, and which launch this is."""
    add_model_options(parser)
    parser.add_argument("--rtt", default="0,20,50", help="round-trip times in ms (default: %(default)s)")
    parser.add_argument("--set", default="code-structured", help="prompt set or file (default: %(default)s)")
    parser.add_argument("--max-new", type=positive, help="token budget (default: the profile's)")
    add_launch_options(parser)
    parser.add_argument("--assemble", action="store_true", help="join the launches into the report")
    add_report_options(parser, "distributed-bench.json")


def measure(options: argparse.Namespace) -> Report | None:
    """Measure one launch and write its part, or join the launches; return the report then.

    Raises:
        UsageError: If there is no drafter, nothing to time, no such launch, or launches are missing.
    """
    context = RunContext.current(out=options.out, profile=options.profile)
    if options.assemble:
        return _assembled(options, context)
    check_launch(options)
    if options.max_new == 1:
        raise UsageError("--max-new 1: the first token is the prompt's; expected at least 2, to time one behind it")
    trips_ms = counts("--rtt", options.rtt)
    if len(set(trips_ms)) != len(trips_ms):
        raise UsageError(f"--rtt {options.rtt!r}; expected each round-trip time once")
    engine = open_selected(options)
    if engine.drafter.info.name == "none":
        raise UsageError("a drafter elsewhere is compared with plain decoding; give --drafter one")
    with connections(engine) as found:
        address = found.served(options)
        arms = [found.arm(f"rtt-{trip}ms", found.delayed(address, trip), PATIENCE_S) for trip in trips_ms]
        _measure_launch(engine, [*arms, DraftingArm(IN_PROCESS, engine.drafter)], options, context)
    return None


def _measure_launch(
    engine: Engine, arms: Sequence[DraftingArm], options: argparse.Namespace, context: RunContext
) -> None:
    least, warmups, budget = PROFILES[context.profile]
    names = (LOCAL, LOCAL_AGAIN, *(arm.name for arm in arms))
    orders = len(every_order(names))
    count, budget = orders * math.ceil(least / orders), options.max_new or budget
    tokenizer, longest = Tokenizer(engine.folder), longest_draft(engine.drafter)
    prompts = load_prompts(options.set, tokenizer, engine.target.info.name).lasting(budget)
    chosen, warm = prompts.select(options.launch, options.launches, count, warmups)
    settings = ArmSettings(CacheLayout.NATIVE, lambda: ControlledDepth(longest), 512)
    plan = DistributedPlan(
        plain=(LOCAL, LOCAL_AGAIN),
        drafting=arms,
        warmups=warm,
        measured=drawn({prompt.id: prompt for prompt in chosen}, context.nonce, options.launch),
        orders=balanced_orders(names, count, context.nonce, options.launch),
        launch=options.launch,
        max_new_tokens=budget,
        stop_ids=frozenset(),
        settings=settings,
    )
    workload = LaunchWorkload(
        kind=KIND,
        prompts=prompts,
        profile=Profile(context.profile, (LOCAL, SPECULATIVE), count, warmups, budget),
        stop="budget",
        settings=settings,
        depth={"policy": "controller", "longest": longest},
    )
    instruments = Instruments.of(engine.backend, tokenizer, context.pipe_fd)

    def run() -> tuple[None, dict[str, Any]]:
        return None, run_distributed(engine, plan, instruments, show)

    config = describe(engine, workload, plan.stop_ids)
    Study(KIND, engine.backend, config, context, part_name(options.launch)).write(run)


def _assembled(options: argparse.Namespace, context: RunContext) -> Report:
    parts = read_parts(context.out, {KIND})
    calls: dict[str, dict[str, Any]] = {}
    for row in (row for part in parts for row in part["rows"]["rpcs"]):
        known = calls.get(row["arm"])
        both = (
            row
            if known is None
            else {name: value if isinstance(value, str) else value + row[name] for name, value in known.items()}
        )
        calls[row["arm"]] = both
    report = replace(merge(parts), rows={"rpcs": list(calls.values())})
    write_report(report, context, options.report)
    remove_parts(context.out)
    return report


def report(found: Report | None) -> None:
    """Print seconds and identity of every arm of a whole report."""
    plain = None if found is None else found.arms[0]
    if found is None or plain is None:
        return
    expected = {sample.id.split("/", 3)[3]: sample for sample in plain.samples}
    for arm in found.arms[1:]:
        counted = [sample for sample in arm.samples if not sample.is_warmup]
        ours = sum(sample.stages.decode_s for sample in counted)
        theirs = sum(expected[sample.prompt_id].stages.decode_s for sample in counted)
        same = sum(sample.tokens == expected[sample.prompt_id].tokens for sample in counted)
        print(f"{arm.name:<12} {theirs / ours:.2f}x plain decoding in this run, identical on {same} of {len(counted)}")


COMMAND = StudyCommand(
    "Decode prompts plainly, twice, and with the drafter behind links of several round-trip times, interleaved.",
    options,
    measure,
    report,
)
