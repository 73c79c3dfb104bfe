"""Quantised caches against the library's own cache: answers, bytes, decode time, and what the codes lose.

Every prompt meets every arm in a balanced, drawn order in one process. The baseline is the array library's own decoding
on its own cache; each other arm is the engine's pipelined decoding without a drafter on one quantised layout, so that
recall and bytes are those of the cache alone. What storing rows in codes changes is summed apart, over the rows that
the exact target made for the first measured prompts: the same values for every arm.

Rows of the report::

    {"errors": [{"arm", "layer", "side", "values", "bits", "error_sq", "reference_sq"}]}
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompts
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement import arms
from engine.measurement.arms import ArmSettings, Running
from engine.measurement.launch import LaunchWorkload, describe, fallbacks
from engine.measurement.measure import Instruments, SamplePlace, measure_sample
from engine.measurement.schedule import Profile, balanced_orders, drawn
from engine.measurement.selection import Prompt, answered, load_prompts
from engine.measurement.study import Study
from engine.options import add_chunk_option, add_model_options, add_report_options, open_selected, positive
from engine.reports import Arm, Fallback, RunContext, Sample
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.tokenizer import Tokenizer
from engine.types import StoredError

PROFILES = {"smoke": (6, 1), "claim": (120, 2)}
"""Measured prompts (a multiple of the orders of three arms) and warm-ups."""
NATIVE = "native"
CANDIDATE_PATH = "engine.decoding.speculative:speculative"
ERROR_PROMPTS = 8
"""Prompts whose rows are coded to sum what that loses; rows of other prompts look alike."""


@dataclass(frozen=True, slots=True)
class QuantPlan:
    """What is measured. ``score`` says whether an answer is right; ``seed`` is the run's nonce."""

    layouts: tuple[CacheLayout, ...]
    measured: Sequence[Prompt]
    warmups: Sequence[Prompt]
    max_new_tokens: int
    stop_ids: frozenset[int]
    chunk_tokens: int
    seed: str
    score: Callable[[Prompt, str], bool]

    def check(self, engine: Engine) -> None:
        """Check the layouts against the target, before any work.

        Raises:
            UsageError: If a layout is not quantised, is named twice or does not fit the target.
        """
        if not self.layouts or len(set(self.layouts)) != len(self.layouts):
            raise UsageError(f"layouts {', '.join(map(str, self.layouts)) or 'none'}; expected distinct quantised ones")
        for layout in self.layouts:
            if layout.bits is None:
                raise UsageError(
                    f"layout {layout} is not quantised; expected affine8, affine4, d4x4, e8x4 or one with /GROUP"
                )
            engine.target.open((), layout)


@dataclass(frozen=True, slots=True)
class QuantResult:
    """The arms with their samples, what fell back, and the raw rows of the report."""

    arms: tuple[Arm, ...]
    errors: tuple[tuple[str, StoredError], ...]
    fallbacks: tuple[Fallback, ...] = ()

    def rows(self) -> dict[str, object]:
        """Return the report's rows."""
        return {"errors": [{"arm": arm, **asdict(error)} for arm, error in self.errors]}


def run_kv_quant(
    engine: Engine, plan: QuantPlan, instruments: Instruments, heard: Callable[[Sample], None] = lambda _: None
) -> QuantResult:
    """Measure every prompt on every arm; ``heard`` learns of each finished sample.

    Raises:
        UsageError: If a layout cannot be measured on this target.
    """
    plan.check(engine)
    layouts = {NATIVE: None} | {str(layout): layout for layout in plan.layouts}
    samples: dict[str, list[Sample]] = {name: [] for name in layouts}
    fallen: list[Fallback] = []
    for index, (prompt, name, is_warmup) in enumerate(_sequence(plan, tuple(layouts))):
        stopping = Stopping(plan.max_new_tokens, plan.stop_ids)
        measured = measure_sample(
            _starting(engine, layouts[name], prompt, stopping, plan.chunk_tokens),
            prompt,
            SamplePlace(0, index, name, is_warmup),
            instruments,
        )
        sample = measured.sample
        # A layout may have the slash in its name that parts of a sample's name are told apart by.
        fallen += [replace(row, arm=name) for row in fallbacks([measured])]
        known = replace(sample, correct=plan.score(prompt, sample.text)) if prompt.expected is not None else sample
        samples[name].append(known)
        heard(known)
    arms = tuple(
        Arm(
            name=name,
            role="baseline" if name == NATIVE else "candidate",
            code_path=engine.native.code_path if name == NATIVE else CANDIDATE_PATH,
            samples=tuple(rows),
        )
        for name, rows in samples.items()
    )
    return QuantResult(arms, _errors(engine, plan), tuple(fallen))


def _sequence(plan: QuantPlan, arms: tuple[str, ...]) -> list[tuple[Prompt, str, bool]]:
    """Return every generation in order: warm-ups first, each on every arm."""
    listed = [(prompt, arm, True) for prompt in plan.warmups for arm in arms]
    prompts = drawn({prompt.id: prompt for prompt in plan.measured}, plan.seed, 0)
    orders = balanced_orders(arms, len(prompts), plan.seed)
    listed += [(prompt, arm, False) for prompt, order in zip(prompts, orders, strict=True) for arm in order]
    return listed


def _starting(
    engine: Engine, layout: CacheLayout | None, prompt: Prompt, stopping: Stopping, chunk_tokens: int
) -> Callable[[], Running]:
    """Return what begins one generation; ``layout`` None is the library's own decoding."""
    if layout is None:
        return partial(arms.native, engine.native, prompt.ids, stopping, chunk_tokens)
    return partial(arms.undrafted, engine, layout, prompt.ids, stopping, chunk_tokens)


def _errors(engine: Engine, plan: QuantPlan) -> tuple[tuple[str, StoredError], ...]:
    """Return by arm, layer and side what coding the exact target's rows loses, summed over the prompts."""
    sums: dict[tuple[str, int, str], StoredError] = {}
    for prompt in plan.measured[:ERROR_PROMPTS]:
        sequence = engine.target.open((), CacheLayout.FULL)
        for _ in sequence.prefill(prompt.ids, plan.chunk_tokens):
            pass
        for layout in plan.layouts:
            for error in sequence.stored_errors(layout):
                key = (str(layout), error.layer, error.side)
                sums[key] = _joined(sums[key], error) if key in sums else error
    return tuple((arm, error) for (arm, _, _), error in sums.items())


def _joined(one: StoredError, other: StoredError) -> StoredError:
    """Return the sums of two parts; bits per value are weighted by how many values each has."""
    values = one.values + other.values
    return replace(
        one,
        values=values,
        bits=(one.bits * one.values + other.bits * other.values) / values,
        error_sq=one.error_sq + other.error_sq,
        reference_sq=one.reference_sq + other.reference_sq,
    )


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, the layouts, and what is asked of them."""
    add_model_options(parser)
    parser.add_argument(
        "--layouts", default="affine8,affine4", help="quantised layouts, separated by commas (default: %(default)s)"
    )
    parser.add_argument("--set", default="needle", help="prompt set or file with answers (default: %(default)s)")
    parser.add_argument("--prompts", type=positive, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=positive, default=48, help="token budget (default: %(default)s)")
    add_chunk_option(parser)
    add_report_options(parser, "kv-quant.json")


def measure(options: argparse.Namespace) -> QuantResult:
    """Answer needle prompts on every layout and write the report.

    Raises:
        UsageError: If a layout cannot be measured, or a prompt has no known answer.
    """
    context = RunContext.current(out=options.out, profile=options.profile)
    layouts = tuple(CacheLayout.parse(text.strip()) for text in options.layouts.split(","))
    # The cache alone is measured: whatever drafter the host names stays out.
    options.drafter = "none"
    engine = open_selected(options)
    tokenizer = Tokenizer(engine.folder)
    count, warmups = PROFILES[context.profile]
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
        seed=context.nonce,
        score=answered,
    )
    workload = LaunchWorkload(
        kind="kv_quantisation",
        prompts=prompts,
        profile=Profile(context.profile, (NATIVE, *map(str, layouts)), count, warmups, options.max_new),
        stop="natural",
        settings=ArmSettings(CacheLayout.NATIVE, lambda: FixedDepth(0), options.prefill_chunk),
        depth={},
    )
    backend = engine.backend
    instruments = Instruments.of(backend, tokenizer)

    def run() -> tuple[QuantResult, dict[str, Any]]:
        found = run_kv_quant(engine, plan, instruments, _show)
        return found, {"arms": found.arms, "fallbacks": found.fallbacks, "rows": found.rows()}

    config = describe(engine, workload, plan.stop_ids) | {"layouts": [str(layout) for layout in layouts]}
    return Study("kv_quantisation", backend, config, context, options.report).write(run)


def report(found: QuantResult) -> None:
    """Print recall and bytes of every arm."""
    for arm in found.arms:
        counted = [sample for sample in arm.samples if not sample.is_warmup]
        right = sum(bool(sample.correct) for sample in counted)
        held = sorted(sample.memory.kv_bytes for sample in counted)[len(counted) // 2]
        print(f"{arm.name}: {right} of {len(counted)} needles, {held} bytes of cache at the median")


def _show(sample: Sample) -> None:
    answer = "right" if sample.correct else "wrong"
    print(f"{sample.id}: {answer}, {sample.memory.kv_bytes} bytes", flush=True)


COMMAND = StudyCommand(
    "Answer needle prompts on the library's own cache and on quantised ones, in balanced order: recall, measured "
    "bytes, decode time, and the squared error of what is stored.",
    options,
    measure,
    report,
)
