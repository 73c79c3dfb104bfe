"""``kakeya-engine eval kv-quant``: what quantised caches cost and keep."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.cli.eval_compare import answered
from engine.cli.options import add_model_options, guarded, open_selected
from engine.decoding.depth import FixedDepth
from engine.errors import UsageError
from engine.evaluation.arms import ArmSettings
from engine.evaluation.kv_quant import NATIVE, QuantPlan, QuantResult, run_kv_quant
from engine.evaluation.launch import Workload, describe
from engine.evaluation.measure import Instruments
from engine.evaluation.schedule import Profile
from engine.evaluation.selection import load_prompts
from engine.evaluation.study import Study
from engine.reports import RunContext, Sample, SamplePipe
from engine.reports.context import PROFILES
from engine.tokenizer import Tokenizer
from engine.types import CacheLayout

QUANT_PROFILES = {"smoke": (6, 1), "claim": (120, 2)}
"""Measured prompts (a multiple of the orders of three arms) and warm-ups."""


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
    parser.add_argument("--prompts", type=int, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=int, default=48, help="token budget (default: %(default)s)")
    parser.add_argument("--prefill-chunk", type=int, default=512, help="prompt rows per forward (default: %(default)s)")
    parser.add_argument("--profile", choices=PROFILES, help="how much to measure (default: KAKEYA_PROFILE)")
    parser.add_argument("--report", default="kv-quant.json", help="name of the report (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="report directory when started by hand (default: here)")
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


def _show(sample: Sample) -> None:
    answer = "right" if sample.correct else "wrong"
    print(f"{sample.id}: {answer}, {sample.memory.kv_bytes} bytes", flush=True)
