"""``kakeya-engine eval kv-quant|bounded-kv``: what quantised and bounded caches cost and keep."""

from __future__ import annotations

import argparse
import secrets
from dataclasses import asdict, replace
from typing import Any

from engine.cli.boundary import guarded
from engine.cli.eval_compare import answered
from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompts
from engine.errors import UsageError
from engine.measurement.arms import ArmSettings
from engine.measurement.launch import Workload, describe
from engine.measurement.measure import Instruments
from engine.measurement.schedule import Profile
from engine.measurement.selection import load_prompts
from engine.measurement.study import Study
from engine.options import (
    add_chunk_option,
    add_model_options,
    add_out_option,
    cache_layout,
    counts,
    open_selected,
    positive,
    whole,
)
from engine.reports import RunContext, Sample, SamplePipe, write_report
from engine.reports.context import PROFILES
from engine.reports.parts import merge, part_name, read_parts, remove_parts
from engine.studies.bounded_kv import MemoryPlan, MemoryPoint, joined_points, measure_memory, point_row
from engine.studies.kv_quant import NATIVE, QuantPlan, QuantResult, run_kv_quant
from engine.tokenizer import Tokenizer
from engine.types import CacheLayout

QUANT_PROFILES = {"smoke": (6, 1), "claim": (120, 2)}
"""Measured prompts (a multiple of the orders of three arms) and warm-ups."""


TARGET_FACTS = (
    "name", "digest", "format", "parameters", "vocab_size", "dtype", "hidden_size", "layer_count", "max_positions"
)  # fmt: skip


def kv_quant(argv: list[str]) -> int:
    """Measure quantised caches; exit 0 when the report is written, whatever it says."""
    parser = argparse.ArgumentParser(
        prog="kakeya-engine eval kv-quant",
        description="Answer needle prompts on the library's own cache and on quantised ones, in balanced order: "
        "recall, measured bytes, decode time, and the squared error of what is stored.",
    )
    add_model_options(parser)
    parser.add_argument(
        "--layouts", default="affine8,affine4", help="quantised layouts, separated by commas (default: %(default)s)"
    )
    parser.add_argument("--set", default="needle", help="prompt set or file with answers (default: %(default)s)")
    parser.add_argument("--prompts", type=positive, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=positive, default=48, help="token budget (default: %(default)s)")
    add_chunk_option(parser)
    parser.add_argument("--profile", choices=PROFILES, help="how much to measure (default: KAKEYA_PROFILE)")
    parser.add_argument("--report", default="kv-quant.json", help="name of the report (default: %(default)s)")
    add_out_option(parser)
    options = parser.parse_args(argv)
    return guarded(lambda: _kv_quant(options))


def _kv_quant(options: argparse.Namespace) -> int:
    context = RunContext.current(out=options.out, profile=options.profile)
    layouts = tuple(CacheLayout.parse(text.strip()) for text in options.layouts.split(","))
    # The cache alone is measured: whatever drafter the host names stays out.
    options.drafter = "none"
    engine = open_selected(options)
    tokenizer = Tokenizer(engine.folder)
    count, warmups = QUANT_PROFILES[context.profile]
    count = options.prompts or count
    prompts = load_prompts(options.set, tokenizer, engine.target.info.name).spread(count + warmups)
    if any(prompt.expected is None for prompt in prompts.prompts):
        raise UsageError(f"prompt set {prompts.name!r} has prompts without an answer; recall needs all of them known")
    measured, warm = prompts.select(0, 1, count, warmups)
    check_prompts((prompt.ids for prompt in (*warm, *measured)), engine.target.info, options.max_new)
    plan = QuantPlan(
        layouts=layouts,
        measured=measured,
        warmups=warm,
        max_new_tokens=options.max_new,
        stop_ids=frozenset(engine.target.info.stop_ids),
        chunk_tokens=options.prefill_chunk,
        seed=context.request_digest,
        score=answered,
    )
    workload = Workload(
        kind="kv_quantisation",
        prompts=prompts,
        profile=Profile(context.profile, (NATIVE, *map(str, layouts)), count, warmups, options.max_new),
        stop="natural",
        settings=ArmSettings(CacheLayout.NATIVE, lambda: FixedDepth(0), options.prefill_chunk),
        depth={},
    )
    backend = engine.backend
    instruments = Instruments(backend.clock, SamplePipe(None), backend.allocator_active_bytes, tokenizer.decode)

    def run() -> tuple[QuantResult, dict[str, Any]]:
        found = run_kv_quant(engine, plan, instruments, _show)
        return found, {"arms": found.arms, "rows": found.rows()}

    config = describe(engine, workload, plan.stop_ids) | {"layouts": [str(layout) for layout in layouts]}
    found = Study("kv_quantisation", backend, config, context, options.report).write(run)
    for arm in found.arms:
        counted = [sample for sample in arm.samples if not sample.is_warmup]
        right = sum(bool(sample.correct) for sample in counted)
        held = sorted(sample.memory.kv_bytes for sample in counted)[len(counted) // 2]
        print(f"{arm.name}: {right} of {len(counted)} needles, {held} bytes of cache at the median")
    return 0


def bounded_kv(argv: list[str]) -> int:
    """Measure one launch of the memory curve, or join the launches; exit 0 when its file is written."""
    parser = argparse.ArgumentParser(
        prog="kakeya-engine eval bounded-kv",
        description="Bytes a sequence holds by context. A launch is a process with one arm: the first half of the "
        "launches measures the library's own cache, the second half --cache. --assemble joins them.",
    )
    add_model_options(parser)
    parser.add_argument("--cache", default="sink4+window64", help="layout that is measured (default: %(default)s)")
    parser.add_argument("--contexts", default="256,512,1024,2048", help="context lengths (default: %(default)s)")
    parser.add_argument("--set", default="needle", help="prompt set whose text is the context (default: %(default)s)")
    parser.add_argument("--max-new", type=positive, default=32, help="tokens decoded after it (default: %(default)s)")
    add_chunk_option(parser)
    parser.add_argument("--launch", type=whole, default=0, help="which launch this is, from 0")
    parser.add_argument("--launches", type=positive, default=2, help="how many there are, an even number")
    parser.add_argument("--assemble", action="store_true", help="join the launches into the report")
    parser.add_argument("--report", default="bounded-kv.json", help="name of the report (default: %(default)s)")
    parser.add_argument("--profile", choices=PROFILES, help="how much to measure (default: KAKEYA_PROFILE)")
    add_out_option(parser)
    options = parser.parse_args(argv)
    return guarded(lambda: _assembled_memory(options) if options.assemble else _bounded_kv(options))


def _bounded_kv(options: argparse.Namespace) -> int:
    repeats, odd = divmod(options.launches, 2)
    if odd or not 0 <= options.launch < options.launches:
        raise UsageError(
            f"--launch {options.launch} of --launches {options.launches}; expected 0 <= launch < launches and as many "
            "launches of either arm"
        )
    context, layout = RunContext.current(out=options.out, profile=options.profile), cache_layout(options)
    options.drafter = "none"
    engine = open_selected(options)
    prompts = load_prompts(options.set, Tokenizer(engine.folder), engine.target.info.name)
    longest_first = sorted(prompts.prompts, key=lambda prompt: -len(prompt.ids))
    plan = MemoryPlan(
        layout=layout,
        native=options.launch < repeats,
        repeat=options.launch % repeats,
        # Process numbers repeat between sandboxes; a number drawn in the process does not.
        process=1 + secrets.randbits(48),
        contexts=counts("--contexts", options.contexts),
        decode_tokens=options.max_new,
        chunk_tokens=options.prefill_chunk,
        ids=tuple(token for prompt in longest_first for token in prompt.ids),
    )
    target = asdict(engine.target.info)
    config = {
        "target": {name: target[name] for name in TARGET_FACTS},
        "drafter": None,
        "cache_layout": str(layout),
        "prompt_set": prompts.name,
        "prefill_chunk_tokens": options.prefill_chunk,
    }

    def run() -> tuple[tuple[MemoryPoint, ...], dict[str, Any]]:
        found = measure_memory(engine, plan, _show_point)
        return found, {"rows": {"points": [point_row(point) for point in found]}}

    Study("bounded_kv", engine.backend, config, context, part_name(options.launch)).write(run)
    return 0


def _assembled_memory(options: argparse.Namespace) -> int:
    context = RunContext.current(out=options.out, profile=options.profile)
    parts = read_parts(context.out, {"bounded_kv"})
    points = joined_points(parts)
    native = sum(point["role"] == "baseline" for point in points)
    if 2 * native != len(points):
        raise UsageError(
            f"the launches hold {native} points of the library's cache and {len(points) - native} of the layout; "
            "expected as many of either. Run the launches that are missing."
        )
    report = replace(merge(parts), rows={"points": points})
    write_report(report, context, options.report)
    remove_parts(context.out)
    for point in report.rows["points"] if report.rows else ():
        print(f"{point['arm']} at {point['context_tokens']} tokens: {point['kv_bytes']} bytes")
    return 0


def _show_point(point: MemoryPoint) -> None:
    print(f"{point.arm} at {point.context_tokens} tokens: {point.kv_bytes} bytes of cache", flush=True)


def _show(sample: Sample) -> None:
    answer = "right" if sample.correct else "wrong"
    print(f"{sample.id}: {answer}, {sample.memory.kv_bytes} bytes", flush=True)
