"""``kakeya-engine eval code|needle|native``: measure one launch of a comparison and write its part."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from engine.cli.boundary import guarded
from engine.measurement.arms import AUTOREGRESSIVE, AUTOREGRESSIVE_AGAIN, ArmSettings
from engine.measurement.launch import Turn, Workload, run_part
from engine.measurement.schedule import PROFILES, Profile
from engine.measurement.selection import Prompt, PromptSet, load_prompts
from engine.options import (
    add_decoding_options,
    add_launch_options,
    add_model_options,
    add_out_option,
    cache_layout,
    check_launch,
    depth_factory,
    open_selected,
    positive,
)
from engine.reports import RunContext, Sample, write_report
from engine.reports.parts import part_name
from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Preset:
    """What distinguishes one workload from another. ``max_new_tokens`` None leaves the profile's budget."""

    kind: str
    prompt_set: str
    max_new_tokens: int | None
    baseline_only: bool = False


PRESETS = {
    "code": Preset("code_throughput", "code-structured", None),
    "needle": Preset("needle_recall", "needle", 48),
    "native": Preset("code_throughput", "code-structured", None, baseline_only=True),
}


def parser(name: str) -> argparse.ArgumentParser:
    """Return the command line of a workload."""
    built = argparse.ArgumentParser(
        prog=f"kakeya-engine eval {name}",
        description="Measure one launch: every prompt on every arm, interleaved in an order drawn from the request "
        "digest. Writes parts/launch-N.json; `kakeya-engine eval assemble` joins the launches.",
    )
    add_model_options(built)
    add_decoding_options(built)
    preset = PRESETS[name]
    built.add_argument("--set", default=preset.prompt_set, help="prompt set or file (default: %(default)s)")
    built.add_argument(
        "--profile", choices=tuple(PROFILES), help="how much to measure (default: KAKEYA_PROFILE, smoke)"
    )
    add_launch_options(built)
    built.add_argument("--stop", choices=("natural", "budget"), default="natural", help="budget ignores stop tokens")
    built.add_argument(
        "--max-new", type=positive, default=preset.max_new_tokens, help="token budget (default: the profile's)"
    )
    add_out_option(built)
    return built


def code(argv: list[str]) -> int:
    """Measure code prompts; exit 0 when the part is written."""
    return _main("code", argv)


def needle(argv: list[str]) -> int:
    """Measure needle prompts and score the answers."""
    return _main("needle", argv)


def native(argv: list[str]) -> int:
    """Measure the array library's own decoding alone."""
    return _main("native", argv)


def _main(name: str, argv: list[str]) -> int:
    options = parser(name).parse_args(argv)
    return guarded(lambda: _run(PRESETS[name], options))


def _run(preset: Preset, options: argparse.Namespace) -> int:
    check_launch(options)
    context, layout = RunContext.current(out=options.out, profile=options.profile), cache_layout(options, lossless=True)
    if preset.baseline_only:
        options.drafter = "none"
    engine = open_selected(options)
    tokenizer = Tokenizer(engine.folder)
    profile = _profile(preset, context.profile, options)
    make_depth, described = depth_factory(options.depth, engine)
    workload = Workload(
        kind=preset.kind,
        prompts=_prompts(preset, profile, options, load_prompts(options.set, tokenizer, engine.target.info.name)),
        profile=profile,
        stop=options.stop,
        settings=ArmSettings(layout, make_depth, options.prefill_chunk),
        depth=described,
        score=answered if preset.kind == "needle_recall" else None,
    )
    names = f"{engine.target.info.name} with {engine.drafter.info.name}"
    device = f"{engine.backend.name} {engine.backend.device}"
    print(f"launch {options.launch + 1} of {options.launches}: {names} on {device}", flush=True)
    part = run_part(engine, tokenizer, workload, context, Turn(options.launch, options.launches, show))
    write_report(part, context, part_name(options.launch))
    return 0


def _profile(preset: Preset, name: str, options: argparse.Namespace) -> Profile:
    profile = PROFILES[name]
    if preset.baseline_only:
        arms = (AUTOREGRESSIVE,) if name == "smoke" else (AUTOREGRESSIVE, AUTOREGRESSIVE_AGAIN)
        profile = replace(profile, arms=arms)
    return replace(profile, max_new_tokens=options.max_new or profile.max_new_tokens)


def _prompts(preset: Preset, profile: Profile, options: argparse.Namespace, prompts: PromptSet) -> PromptSet:
    """Apply the workload's rule: lasting answers for throughput, an even spread over lengths for needles."""
    if preset.kind == "needle_recall":
        return prompts.spread(profile.prompts_per_launch * options.launches + profile.warmups)
    return prompts.lasting(profile.max_new_tokens)


def answered(prompt: Prompt, text: str) -> bool:
    """Say whether the answer's first line holds the expected value as a whole word."""
    first = text.strip().split("\n", 1)[0]
    words = {word.strip(".,;:!?'\"()") for word in first.split()}
    return prompt.expected in words


def show(sample: Sample) -> None:
    """Print one finished sample."""
    stages, counters = sample.stages, sample.counters
    drafted = f", {counters.accepted_tokens}/{counters.drafted_tokens} accepted" if counters.drafted_tokens else ""
    warm = " (warm-up)" if sample.is_warmup else ""
    print(f"  {sample.id}{warm}: {sample.output_tokens} tokens, decode {stages.decode_s:.3f} s{drafted}", flush=True)
