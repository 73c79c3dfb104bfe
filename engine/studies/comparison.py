"""Speculative decoding against the library's own: launches of code and needle prompts, and the joining of them.

``native`` measures the library's own decoding alone.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import partial

from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement.arms import AUTOREGRESSIVE, AUTOREGRESSIVE_AGAIN, ArmSettings
from engine.measurement.in_turns import be_reference, part_in_turns, read_calibration
from engine.measurement.launch import LaunchTurn, LaunchWorkload, run_part
from engine.measurement.proposal import TrialSettings, described, proposed, try_depths
from engine.measurement.schedule import PROFILES, Profile, in_turns
from engine.measurement.selection import PromptSet, answered, chosen_of, load_prompts
from engine.options import (
    add_decoding_options,
    add_launch_options,
    add_model_options,
    add_out_option,
    cache_layout,
    check_launch,
    depth_factory,
    longest_depth,
    open_selected,
    positive,
)
from engine.reports import RunContext, write_report
from engine.reports.parts import merge, part_name, read_part, read_parts, remove_parts
from engine.reports.summary import Summary, claims, summarise
from engine.studies.command import StudyCommand, show
from engine.tokenizer import Tokenizer
from engine.turns import Turns


@dataclass(frozen=True, slots=True)
class ArmsCompared:
    """What distinguishes one workload from another. ``max_new_tokens`` None leaves the profile's budget."""

    kind: str
    prompt_set: str
    max_new_tokens: int | None
    baseline_only: bool = False


KINDS = frozenset({"code_throughput", "needle_recall"})
PROPOSAL_PROMPTS = 3


def options(preset: ArmsCompared, parser: argparse.ArgumentParser) -> None:
    """Add the options of a launch."""
    add_model_options(parser)
    add_decoding_options(parser, zero="the depth that a trial on other prompts proposes")
    parser.add_argument("--set", default=preset.prompt_set, help="prompt set or file (default: %(default)s)")
    parser.add_argument(
        "--profile", choices=tuple(PROFILES), help="how much to measure (default: KAKEYA_PROFILE, smoke)"
    )
    add_launch_options(parser)
    parser.add_argument("--reference", action="store_true", help="decode alone what a launch decoded in turns")
    parser.add_argument("--stop", choices=("natural", "budget"), default="natural", help="budget ignores stop tokens")
    parser.add_argument(
        "--max-new", type=positive, default=preset.max_new_tokens, help="token budget (default: the profile's)"
    )
    add_out_option(parser)


def measure(preset: ArmsCompared, options: argparse.Namespace) -> None:
    """Measure one launch and write its part; where a supervisor hands out turns, these are the measurement."""
    turns = Turns.open()
    if turns is not None:
        measure_in_turns(preset, turns, options)
        return
    if options.reference:
        raise UsageError("--reference is for a supervisor that hands out turns; nobody does here")
    check_launch(options)
    context, layout = RunContext.current(out=options.out, profile=options.profile), cache_layout(options, lossless=True)
    if preset.baseline_only:
        options.drafter = "none"
    engine = open_selected(options)
    tokenizer = Tokenizer(engine.folder)
    profile = _profile(preset, PROFILES[context.profile], options)
    prompts = _prompts(preset, profile, options, load_prompts(options.set, tokenizer, engine.target.info.name))
    if options.depth == "0" and not preset.baseline_only:
        options.depth = str(_proposed_depth(engine, prompts, profile, options, context))
    make_depth, depth = depth_factory(options.depth, engine)
    workload = LaunchWorkload(
        kind=preset.kind,
        prompts=prompts,
        profile=profile,
        stop=options.stop,
        settings=ArmSettings(layout, make_depth, options.prefill_chunk),
        depth=depth,
        score=answered if preset.kind == "needle_recall" else None,
    )
    names = f"{engine.target.info.name} with {engine.drafter.info.name}"
    device = f"{engine.backend.name} {engine.backend.device}"
    print(f"launch {options.launch + 1} of {options.launches}: {names} on {device}", flush=True)
    part = run_part(engine, tokenizer, workload, context, LaunchTurn(options.launch, options.launches, show))
    write_report(part, context, part_name(options.launch))


def measure_in_turns(preset: ArmsCompared, turns: Turns, options: argparse.Namespace) -> None:
    """Measure the launch that a supervisor says this is, or be its reference; launch 0 writes what it calibrated."""
    context, layout = RunContext.current(out=options.out, profile=options.profile), cache_layout(options, lossless=True)
    if options.reference or preset.baseline_only:
        options.drafter = "none"
    engine = open_selected(options)
    profile = _profile(preset, in_turns(PROFILES[context.profile]), options)
    prompts = _prompts(
        preset, profile, options, load_prompts(options.set, Tokenizer(engine.folder), engine.target.info.name)
    )
    known = read_calibration(context.out)
    if options.depth == "0" and not (options.reference or preset.baseline_only):
        proposal = (engine, prompts, profile, options)
        options.depth = str(known["depth"] if known else _trial(*proposal, profile.blocks * profile.prompts_per_launch))
    make_depth, depth = depth_factory("0" if options.reference else options.depth, engine)
    workload = LaunchWorkload(
        kind=preset.kind,
        prompts=prompts,
        profile=replace(profile, arms=profile.arms[:1]) if options.reference else profile,
        stop=options.stop,
        settings=ArmSettings(layout, make_depth, options.prefill_chunk),
        depth=depth,
        score=answered if preset.kind == "needle_recall" else None,
    )
    if options.reference:
        be_reference(turns, engine, workload, context)
        return
    part, number = part_in_turns(turns, engine, workload, context, partial(print, flush=True))
    if number > 0:
        write_report(part, context, part_name(number - 1))


def _proposed_depth(
    engine: Engine, prompts: PromptSet, profile: Profile, options: argparse.Namespace, context: RunContext
) -> int:
    """Return the depth that a trial on prompts which no launch measures proposes; later launches take the first's.

    Raises:
        UsageError: If there is no such prompt, or the first launch has not been measured.
    """
    if options.launch:
        return int(read_part(context.out / part_name(0), KINDS)["config"]["depth"]["tokens"])
    return _trial(engine, prompts, profile, options, profile.prompts_per_launch * options.launches)


def _trial(engine: Engine, prompts: PromptSet, profile: Profile, options: argparse.Namespace, measured: int) -> int:
    """Return the depth that a trial proposes on prompts after those that are measured."""
    spare = prompts.prompts[measured:][-PROPOSAL_PROMPTS:]
    settings = TrialSettings(cache_layout(options), options.prefill_chunk)
    settings = replace(settings, max_new_tokens=min(profile.max_new_tokens, settings.max_new_tokens))
    ids, heard = [prompt.ids for prompt in spare], partial(print, flush=True)
    trials = try_depths(engine, ids, longest_depth(engine), settings, heard)
    # Who watches a run whose turns are handed out must not learn when to end it: the log says no ratio.
    said = f"depth {proposed(trials).depth}" if profile.in_turns else described(trials)
    print(f"proposed: {said}, {len(spare)} prompts that are not measured", flush=True)
    return proposed(trials).depth


def _profile(preset: ArmsCompared, profile: Profile, options: argparse.Namespace) -> Profile:
    if preset.baseline_only:
        alone = profile.name == "smoke" and not profile.in_turns  # turns are handed out to two arms
        arms = (AUTOREGRESSIVE,) if alone else (AUTOREGRESSIVE, AUTOREGRESSIVE_AGAIN)
        profile = replace(profile, arms=arms)
    return replace(profile, max_new_tokens=options.max_new or profile.max_new_tokens)


def _prompts(preset: ArmsCompared, profile: Profile, options: argparse.Namespace, prompts: PromptSet) -> PromptSet:
    """Apply the workload's rule: lasting answers for throughput, an even spread over lengths for needles."""
    launches = profile.blocks if profile.in_turns else options.launches
    count = profile.prompts_per_launch * launches
    return chosen_of(prompts, preset.kind, profile.max_new_tokens, count, profile.warmups)


def assemble_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of joining."""
    parser.add_argument("--report", default="report.json", help="name of the report (default: %(default)s)")
    parser.add_argument("--profile", choices=("smoke", "claim"), help="only by hand: the profile of the launches")
    add_out_option(parser)


def assemble(options: argparse.Namespace) -> Summary:
    """Join the parts of a run's launches into the one declared report; the parts go."""
    context = RunContext.current(out=options.out, profile=options.profile)
    report = merge(read_parts(context.out, KINDS))
    summary = summarise(report)
    # The ratio of turns is the runner's, over launches: the report says nothing of it.
    stated = () if read_calibration(context.out) else claims(report, summary)
    write_report(replace(report, claims=stated), context, options.report)
    remove_parts(context.out)
    return summary


def report(summary: Summary) -> None:
    """Print the totals of every arm."""
    columns = ("samples", "tokens", "decode s", "tokens/s", "per forward", "KV bytes")
    print(f"{'arm':<22}" + "".join(f"{column:>12}" for column in columns))
    for arm in summary.arms:
        print(
            f"{arm.name:<22}{arm.samples:>12}{arm.output_tokens:>12}{arm.decode_s:>12.3f}{arm.tokens_per_s:>12.1f}"
            f"{arm.acceptance_length:>12.2f}{arm.kv_bytes:>12}"
        )
    if summary.ratio is not None:
        word = "faster" if summary.ratio > 1 else "slower"
        print(
            f"speculative / autoregressive: {summary.ratio:.2f}x ({word} in this run; the gate says what may be quoted)"
        )
        print(f"tokens identical on {summary.identical} of {summary.compared} prompts")


def _launch(preset: ArmsCompared) -> StudyCommand[None]:
    description = (
        "Measure one launch: every prompt on every arm, interleaved in an order drawn from the run's nonce. Writes "
        "parts/launch-N.json; `kakeya-engine eval assemble` joins the launches."
    )
    return StudyCommand(description, partial(options, preset), partial(measure, preset))


CODE = _launch(ArmsCompared("code_throughput", "code-structured", None))
NEEDLE = _launch(ArmsCompared("needle_recall", "needle", 48))
NATIVE = _launch(ArmsCompared("code_throughput", "code-structured", None, baseline_only=True))
ASSEMBLE = StudyCommand(
    "``kakeya-engine eval assemble``: join the parts of a run's launches into the one declared report.",
    assemble_options,
    assemble,
    report,
)
