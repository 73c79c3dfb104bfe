"""``kakeya-engine eval drafter-parity|verify-cost|acceptance``: studies that are one process and one report each."""

from __future__ import annotations

import argparse
from typing import Any

from engine.cli.boundary import guarded
from engine.errors import ModelMismatchError, UsageError
from engine.loading import Engine
from engine.measurement.arms import AUTOREGRESSIVE, SPECULATIVE, ArmSettings
from engine.measurement.launch import Workload, describe
from engine.measurement.measure import Instruments
from engine.measurement.schedule import Profile
from engine.measurement.selection import Prompt, PromptSet, load_prompts
from engine.measurement.study import Study
from engine.options import LONGEST_DRAFT, add_model_options, add_out_option, counts, open_selected, positive
from engine.reports import RunContext, Sample, SamplePipe, packed_tokens
from engine.studies.acceptance import AcceptancePlan, acceptance_length, fixed, run_acceptance
from engine.studies.drafter_parity import Parity, compare
from engine.studies.verify_cost import CostPlan, Costs, measure_costs
from engine.tokenizer import Tokenizer
from engine.types import CacheLayout

PARITY_PROFILES = {"smoke": (4, 48), "claim": (24, 128)}
"""Prompts and tokens a prompt."""
COST_REPEATS = {"smoke": 8, "claim": 40}
ACCEPTANCE_PROFILES = {"smoke": (4, 1, 48), "claim": (60, 2, 256)}
"""Measured prompts (as many as the set has, at most this), warm-ups, tokens a prompt."""
MODEL_FACTS = ("target", "drafter", "dtype", "cache_layout", "seed")


def drafter_parity(argv: list[str]) -> int:
    """Compare the MLX and the torch drafter; exit 0 when the report is written, whatever it says."""
    parser = _parser("drafter-parity", "Compare the MLX and the torch drafter of one checkpoint token by token.")
    parser.add_argument("--set", default="code-structured", help="prompt set or file (default: %(default)s)")
    parser.add_argument("--prompts", type=positive, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=positive, help="tokens a prompt (default: the profile's)")
    parser.set_defaults(backend="mlx", report="drafter-parity.json")
    options = parser.parse_args(argv)
    return guarded(lambda: _drafter_parity(options))


def verify_cost(argv: list[str]) -> int:
    """Measure verify(L) and draft(L) by context length."""
    parser = _parser("verify-cost", "Measure what verifying a block costs beside decoding one token.")
    parser.add_argument("--contexts", default="64,512", help="context lengths in tokens (default: %(default)s)")
    parser.add_argument("--rows", default="1,2,4,8,16", help="block lengths, bonus included (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, help="forwards of each shape (default: the profile's)")
    parser.add_argument(
        "--random-shapes",
        help="torch only: a target of published shapes with random weights, for cost alone (gemma4-26b-a4b)",
    )
    parser.set_defaults(report="verify-cost.json")
    options = parser.parse_args(argv)
    return guarded(lambda: _verify_cost(options))


def acceptance(argv: list[str]) -> int:
    """Measure acceptance on raw code completion."""
    parser = _parser("acceptance", "Complete raw code as HumanEval asks for it and count what the target accepts.")
    parser.add_argument("--set", default="code-raw", help="prompt set or file (default: %(default)s)")
    parser.add_argument("--prompts", type=positive, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=positive, help="tokens a prompt (default: the profile's)")
    parser.add_argument("--depth", type=positive, help="drafted tokens per step (default: a whole block)")
    parser.set_defaults(report="acceptance.json")
    options = parser.parse_args(argv)
    return guarded(lambda: _acceptance(options))


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    built = argparse.ArgumentParser(prog=f"kakeya-engine eval {name}", description=description)
    add_model_options(built)
    built.add_argument("--profile", choices=("smoke", "claim"), help="how much to measure (default: KAKEYA_PROFILE)")
    built.add_argument("--report", help="name of the report (default: %(default)s)")
    add_out_option(built)
    return built


def _drafter_parity(options: argparse.Namespace) -> int:
    context = RunContext.current(out=options.out, profile=options.profile)
    prompts, budget = PARITY_PROFILES[context.profile]
    mlx = open_selected(_changed(options, backend="mlx", device=None, dtype=None, cuda_graphs="auto"))
    torch = open_selected(_changed(options, backend="torch", device=options.device or "cpu"))
    if options.dtype == "float32" and mlx.target.info.dtype != "float32":
        raise ModelMismatchError(
            f"the checkpoint is {mlx.target.info.dtype} on mlx; parity in float32 needs a float32 checkpoint"
        )
    chosen = _load(options.set, mlx).spread(options.prompts or prompts)
    budget = options.max_new or budget

    def run() -> tuple[Parity, dict[str, Any]]:
        found = compare(mlx, torch, chosen.prompts, budget, _show_parity)
        prompts = {prompt.digest: packed_tokens(prompt.ids) for prompt in chosen.prompts}
        return found, {"rows": found.rows(), "prompts": prompts}

    config = _facts(mlx, chosen, budget) | {"prompt_set": chosen.name, "max_new_tokens": budget}
    study = Study("drafter_parity", mlx.backend, config, context, options.report, torch.backend.versions())
    parity = study.write(run)
    print(f"drafters agree on {parity.agreed_tokens} of {parity.drafted_tokens} tokens")
    print(f"generations identical on {parity.identical_generations} of {len(parity.generations)} prompts")
    return 0


def _verify_cost(options: argparse.Namespace) -> int:
    context = RunContext.current(out=options.out, profile=options.profile)
    plan = CostPlan(
        counts("--contexts", options.contexts),
        counts("--rows", options.rows),
        options.repeats or COST_REPEATS[context.profile],
        context.request_digest,
    )
    engine = _engine_for_costs(options)

    def run() -> tuple[Costs, dict[str, Any]]:
        found = measure_costs(engine, plan, lambda size: print(f"context {size}: measured", flush=True))
        return found, {"rows": found.rows(), "fallbacks": found.fallbacks}

    shapes = {"contexts": list(plan.contexts), "rows": list(plan.rows), "repeats": plan.repeats}
    config = _facts(engine, PromptSet("none", "random ids", ()), 0) | shapes
    costs = Study("verify_cost", engine.backend, config, context, options.report).write(run)
    for size in plan.contexts:
        shown = "  ".join(f"{rows}: {costs.ratio(size, rows):.2f}" for rows in plan.rows)
        print(f"context {size}: verify(rows) / decode, medians of this run  {shown}")
    return 0


def _acceptance(options: argparse.Namespace) -> int:
    context = RunContext.current(out=options.out, profile=options.profile)
    count, warmups, budget = ACCEPTANCE_PROFILES[context.profile]
    engine = open_selected(options)
    if engine.drafter.info.name == "none":
        raise UsageError("acceptance needs a drafter; give --drafter a DFlash folder or ngram")
    tokenizer = Tokenizer(engine.folder)
    prompts = load_prompts(options.set, tokenizer, engine.target.info.name)
    # A small set is measured whole; how many prompts there were is in the report.
    available = max(len(prompts.prompts) - warmups, 1)
    measured, warm = prompts.select(0, 1, options.prompts or min(count, available), warmups)
    longest = (engine.drafter.info.block_size or LONGEST_DRAFT + 1) - 1
    if options.depth is not None and options.depth > longest:
        raise UsageError(
            f"--depth {options.depth}; {engine.drafter.info.name} proposes at most {longest} tokens a step"
        )
    depth = options.depth or (engine.drafter.info.block_size or 9) - 1
    budget = options.max_new or budget
    plan = AcceptancePlan(
        prompts=measured,
        warmups=warm,
        max_new_tokens=budget,
        depth=depth,
        settings=ArmSettings(CacheLayout.NATIVE, fixed(depth), 512),
        stop_ids=frozenset(engine.target.info.stop_ids),
        decode=tokenizer.decode,
    )
    clock, pipe = engine.backend.clock, SamplePipe(context.pipe_fd)
    instruments = Instruments(clock, pipe, engine.backend.allocator_active_bytes, tokenizer.decode)

    def run() -> tuple[tuple[Sample, ...], dict[str, Any]]:
        found = run_acceptance(engine, plan, instruments, _show_sample)
        counted = tuple(item for arm in found.arms if arm.name == SPECULATIVE for item in arm.samples)
        rows = {"by_position": [dict(row) for row in found.by_position]}
        return counted, {"arms": found.arms, "fallbacks": found.fallbacks, "rows": rows}

    workload = _workload("acceptance", prompts, len(measured), budget, depth)
    config = describe(engine, workload, plan.stop_ids)
    samples = Study("acceptance", engine.backend, config, context, options.report).write(run)
    length = acceptance_length(sample for sample in samples if not sample.is_warmup)
    print(f"{length:.2f} committed tokens per target forward over {len(measured)} prompts of this run")
    return 0


def _workload(kind: str, prompts: PromptSet, count: int, budget: int, depth: int) -> Workload:
    return Workload(
        kind=kind,
        prompts=prompts,
        profile=Profile(kind, (AUTOREGRESSIVE, SPECULATIVE), count, 0, budget),
        stop="natural",
        settings=ArmSettings(CacheLayout.NATIVE, fixed(depth), 512),
        depth={"policy": "fixed", "tokens": depth},
    )


def _facts(engine: Engine, prompts: PromptSet, budget: int) -> dict[str, Any]:
    """Return what a report without samples says about its models."""
    depth = (engine.drafter.info.block_size or 1) - 1
    whole = describe(engine, _workload("study", prompts, 0, budget, depth), frozenset())
    if engine.drafter.info.name == "none":
        whole["drafter"] = None
    return {name: whole[name] for name in MODEL_FACTS}


def _engine_for_costs(options: argparse.Namespace) -> Engine:
    if options.random_shapes is None:
        return open_selected(options)
    if options.backend != "torch":
        raise UsageError("--random-shapes builds its target with torch; add --backend torch")
    from engine.loading import open_random

    return open_random(options.random_shapes, options.device, options.dtype, options.cuda_graphs)


def _load(name: str, engine: Engine) -> PromptSet:
    return load_prompts(name, Tokenizer(engine.folder), engine.target.info.name)


def _changed(options: argparse.Namespace, **values: object) -> argparse.Namespace:
    return argparse.Namespace(**(vars(options) | values))


def _show_parity(prompt: Prompt, parity: Parity) -> None:
    same = "identical" if parity.identical_generations else "different"
    print(f"{prompt.id}: {parity.agreed_tokens} of {parity.drafted_tokens} tokens agree, output {same}", flush=True)


def _show_sample(sample: Sample) -> None:
    counters = sample.counters
    print(f"{sample.id}: {sample.output_tokens} tokens in {counters.target_forwards} forwards", flush=True)
