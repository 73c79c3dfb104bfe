"""One launch of an interleaved comparison: every prompt on every arm, in drawn order, after warm-ups.

The launch is one process. It returns a part of the report; ``engine.reports.parts`` joins the parts of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.decoding.prompt import check_prompts
from engine.loading import Engine
from engine.measurement import arms as arm_module
from engine.measurement.arms import ROLES, ArmSettings
from engine.measurement.measure import Instruments, Measured, SamplePlace, measure_sample
from engine.measurement.schedule import balanced_orders, shuffled
from engine.measurement.selection import Prompt
from engine.reports import Arm, Fallback, Sample
from engine.stopping import Stopping


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What one launch measures. ``seed`` is the request digest."""

    arms: tuple[str, ...]
    measured: Sequence[Prompt]
    warmups: Sequence[Prompt]
    launch: int
    seed: str
    max_new_tokens: int
    stop_ids: frozenset[int]
    settings: ArmSettings


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The arms of one launch with their samples, warm-ups included, and what fell back."""

    arms: tuple[Arm, ...]
    fallbacks: tuple[Fallback, ...]


def run_launch(
    engine: Engine, plan: LaunchPlan, instruments: Instruments, report: Callable[[Sample], None] = lambda _: None
) -> LaunchResult:
    """Measure a launch; ``report`` hears of every finished sample.

    Raises:
        PromptError: If a prompt of the plan and its budget do not fit the target.
    """
    used = (*plan.warmups, *plan.measured)
    check_prompts((prompt.ids for prompt in used), engine.target.info, plan.max_new_tokens)
    finished: list[Measured] = []
    listed = sequence(plan.arms, plan.measured, plan.warmups, plan.seed, plan.launch)
    for index, (prompt, arm, is_warmup) in enumerate(listed):
        stopping = Stopping(budget_tokens=plan.max_new_tokens, stop_ids=plan.stop_ids)
        measured = measure_sample(
            lambda arm=arm, prompt=prompt, stopping=stopping: arm_module.start(  # type: ignore[misc]
                engine, arm, plan.settings, prompt.ids, stopping
            ),
            prompt,
            SamplePlace(plan.launch, index, arm, is_warmup),
            instruments,
        )
        finished.append(measured)
        report(measured.sample)
    samples = with_margins(engine, plan, finished)
    arms = tuple(
        Arm(
            name=arm,
            role=ROLES[arm],
            code_path=arm_module.code_path(engine, arm),
            samples=tuple(sample for sample in samples if sample.id.split("/")[2] == arm),
        )
        for arm in plan.arms
    )
    return LaunchResult(arms, tuple(fallbacks(finished)))


def sequence(
    arms: tuple[str, ...], measured: Sequence[Prompt], warmups: Sequence[Prompt], seed: str, launch: int
) -> list[tuple[Prompt, str, bool]]:
    """Return every generation of a launch in order: warm-ups first, each on every arm."""
    listed = [(prompt, arm, True) for prompt in warmups for arm in arms]
    prompts = shuffled(measured, seed, launch, "prompts")
    orders = balanced_orders(arms, len(prompts), seed, launch)
    listed += [(prompt, arm, False) for prompt, order in zip(prompts, orders, strict=True) for arm in order]
    return listed


def with_margins(engine: Engine, plan: LaunchPlan, finished: Sequence[Measured]) -> list[Sample]:
    """Return the samples; one that differs from the baseline gets the target's top-2 margin where it does."""
    reference = {
        item.sample.prompt_id: item.sample.tokens for item in finished if item.sample.id.split("/")[2] == plan.arms[0]
    }
    prompts = {prompt.id: prompt for prompt in (*plan.measured, *plan.warmups)}
    samples = []
    for item in finished:
        sample, expected = item.sample, reference[item.sample.prompt_id]
        if sample.tokens != expected:
            agreed = agreement(sample.tokens, expected)
            margin = top2_margin(engine, prompts[sample.prompt_id].ids + sample.tokens[:agreed], plan.settings)
            sample = replace(sample, top2_margin_at_divergence=margin)
        samples.append(sample)
    return samples


def agreement(left: Sequence[int], right: Sequence[int]) -> int:
    """Return how many tokens two outputs share from the start."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))


def top2_margin(engine: Engine, ids: tuple[int, ...], settings: ArmSettings) -> float:
    """Return how near a tie the target's choice after ``ids`` is, from a forward of its own."""
    sequence = engine.target.open((), settings.layout)
    *_, last = sequence.prefill(ids, settings.chunk_tokens)
    return engine.accept.margin(last)


def fallbacks(finished: Sequence[Measured]) -> list[Fallback]:
    """Return one row per sample and reason: no draft, a row refused by a guard, or a forward without its recording."""
    rows = []
    for item in finished:
        for component, reasons in item.by_component():
            rows += [
                Fallback(
                    arm=item.sample.id.split("/")[2],
                    component=component,
                    sample=item.sample.id,
                    reason=reason,
                    count=count,
                )
                for reason, count in sorted(reasons.items())
            ]
    return rows
