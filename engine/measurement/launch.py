"""One launch of an interleaved comparison: every prompt on every arm, in drawn order, after warm-ups.

A launch is one process. It returns a part of the report, from what was loaded to what was measured;
``engine.reports.parts`` joins the parts of a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.decoding.prompt import check_prompts
from engine.loading import Engine
from engine.measurement import arms
from engine.measurement.arms import ROLES, SPECULATIVE, ArmSettings
from engine.measurement.measure import Instruments, Measured, SamplePlace, measure_sample
from engine.measurement.schedule import Profile, balanced_orders, drawn
from engine.measurement.selection import Prompt, PromptSet
from engine.protocols import Backend
from engine.reports import Arm, Fallback, Report, RunContext, Sample
from engine.reports.context import machine_facts, thread_facts, utc_now
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer
from engine.types import TargetInfo


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What one launch measures. ``seed`` is the run's nonce."""

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
    instruments.pipe.plan(len(listed))
    for index, (prompt, arm, is_warmup) in enumerate(listed):
        stopping = Stopping(budget_tokens=plan.max_new_tokens, stop_ids=plan.stop_ids)
        measured = measure_sample(
            lambda arm=arm, prompt=prompt, stopping=stopping: arms.start(  # type: ignore[misc]
                engine, arm, plan.settings, prompt.ids, stopping
            ),
            prompt,
            SamplePlace(plan.launch, index, arm, is_warmup),
            instruments,
        )
        finished.append(measured)
        report(measured.sample)
    prompts = {prompt.id: prompt.ids for prompt in used}
    samples = with_margins(finished, prompts, plan.arms[0], lambda ids: top2_margin(engine, ids, plan.settings))
    measured_arms = tuple(arm_of(arm, arms.code_path(engine, arm), samples) for arm in plan.arms)
    return LaunchResult(measured_arms, tuple(fallbacks(finished)))


def arm_of(name: str, code_path: str, samples: Sequence[Sample]) -> Arm:
    """Return an arm with those of the samples that are its own."""
    return Arm(name, ROLES[name], code_path, tuple(sample for sample in samples if sample.id.split("/")[2] == name))


def sequence(
    arms: tuple[str, ...], measured: Sequence[Prompt], warmups: Sequence[Prompt], seed: str, launch: int
) -> list[tuple[Prompt, str, bool]]:
    """Return every generation of a launch in order: warm-ups first, each on every arm."""
    listed = [(prompt, arm, True) for prompt in warmups for arm in arms]
    prompts = drawn({prompt.id: prompt for prompt in measured}, seed, launch)
    orders = balanced_orders(arms, len(prompts), seed, launch)
    listed += [(prompt, arm, False) for prompt, order in zip(prompts, orders, strict=True) for arm in order]
    return listed


def with_margins(
    finished: Sequence[Measured],
    prompts: Mapping[str, tuple[int, ...]],
    reference: str,
    margin: Callable[[tuple[int, ...]], float],
) -> list[Sample]:
    """Return the samples; one that differs from the reference arm's gets the ``margin`` of the choice where it does."""
    samples = [item.sample for item in finished]
    expected = {sample.prompt_id: sample.tokens for sample in samples if sample.id.split("/")[2] == reference}
    for index, sample in enumerate(samples):
        if sample.tokens != expected[sample.prompt_id]:
            agreed = agreement(sample.tokens, expected[sample.prompt_id])
            near = margin(prompts[sample.prompt_id] + sample.tokens[:agreed])
            samples[index] = replace(sample, top2_margin_at_divergence=near)
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
                Fallback(item.sample.id.split("/")[2], component, item.sample.id, reason, count)
                for reason, count in sorted(reasons.items())
            ]
    return rows


@dataclass(frozen=True, slots=True)
class LaunchWorkload:
    """What one kind of report measures.

    ``score`` says whether an answer is right, None for workloads without known answers.
    """

    kind: str
    prompts: PromptSet
    profile: Profile
    stop: str
    settings: ArmSettings
    depth: Mapping[str, object]
    score: Callable[[Prompt, str], bool] | None = None


@dataclass(frozen=True, slots=True)
class LaunchTurn:
    """Which launch of how many this process is, and who hears of every finished sample."""

    launch: int
    launches: int
    heard: Callable[[Sample], None] = lambda _: None


def run_part(
    engine: Engine,
    tokenizer: Tokenizer,
    workload: LaunchWorkload,
    context: RunContext,
    turn: LaunchTurn,
) -> Report:
    """Measure one launch and return its part."""
    clock, profile = engine.backend.clock, workload.profile
    started_at, began_ns = utc_now(), clock.host_ns()
    measured, warmups = workload.prompts.select(turn.launch, turn.launches, profile.prompts_per_launch, profile.warmups)
    stop_ids = frozenset(engine.target.info.stop_ids if workload.stop == "natural" else ())
    plan = LaunchPlan(
        arms=profile.arms,
        measured=measured,
        warmups=warmups,
        launch=turn.launch,
        seed=context.nonce,
        max_new_tokens=profile.max_new_tokens,
        stop_ids=stop_ids,
        settings=workload.settings,
    )
    instruments = Instruments.of(engine.backend, tokenizer, context.pipe_fd)
    result = run_launch(engine, plan, instruments, turn.heard)
    prompts_by_id = {prompt.id: prompt for prompt in (*measured, *warmups)}
    arms = tuple(replace(arm, samples=scored(arm.samples, prompts_by_id, workload.score)) for arm in result.arms)
    return Report(
        kind=workload.kind,
        config=describe(engine, workload, stop_ids),
        environment=environment(engine.backend),
        started_at=started_at,
        ended_at=utc_now(),
        wall_s=(clock.host_ns() - began_ns) / 1e9,
        arms=arms,
        fallbacks=result.fallbacks,
    )


def describe(engine: Engine, workload: LaunchWorkload, stop_ids: frozenset[int]) -> dict[str, Any]:
    """Return the report's ``config``: everything that decides what was measured."""
    target, profile = engine.target.info, workload.profile
    speculates = SPECULATIVE in profile.arms
    return {
        "target": target_facts(target),
        "drafter": asdict(engine.drafter.info) if speculates else None,
        "block_size": _block_size(workload.depth) if speculates else None,
        "cache_layout": str(workload.settings.layout),
        "max_new_tokens": profile.max_new_tokens,
        "stop": workload.stop,
        "stopping_ids": sorted(stop_ids),
        "seed": 0,
        "dtype": target.dtype,
        "depth": dict(workload.depth) if speculates else None,
        "prompt_set": workload.prompts.name,
        "prompt_rule": workload.prompts.rule,
        "prefill_chunk_tokens": workload.settings.chunk_tokens,
    }


def target_facts(target: TargetInfo) -> dict[str, Any]:
    """Return what a report says about its target."""
    names = ("name", "digest", "format", "parameters", "vocab_size", "dtype", "reading")
    return {name: value for name in names if (value := getattr(target, name)) != {}}


def restoration_facts(engine: Engine) -> dict[str, Any] | None:
    """Return what a report says about the f_theta that rows are made again by, None where none was loaded."""
    return None if engine.restoration is None else asdict(engine.restoration)


def model_facts(engine: Engine) -> dict[str, Any]:
    """Return what a report without samples says about its models."""
    drafter = engine.drafter.info
    return {
        "target": target_facts(engine.target.info),
        "drafter": None if drafter.name == "none" else asdict(drafter),
        "dtype": engine.target.info.dtype,
        "cache_layout": str(CacheLayout.NATIVE),
        "seed": 0,
    }


def environment(backend: Backend) -> dict[str, Any]:
    """Return the report's ``environment``: device, machine, versions, BLAS and threads."""
    blas = backend.blas()
    return {
        "backend": backend.name,
        "device": backend.device,
        **machine_facts(),
        "versions": backend.versions(),
        "blas": None if blas is None else asdict(blas),
        "threads": thread_facts(os.environ),
    }


def _block_size(depth: Mapping[str, object]) -> int:
    """Return the rows of the longest block: the bonus and its drafts."""
    longest = depth.get("tokens", depth.get("longest", 0))
    return 1 + int(str(longest))


def scored(
    samples: tuple[Sample, ...], prompts: Mapping[str, Prompt], score: Callable[[Prompt, str], bool] | None
) -> tuple[Sample, ...]:
    """Return the samples with ``correct`` filled in where an answer is known."""
    if score is None:
        return samples
    return tuple(
        sample
        if prompts[sample.prompt_id].expected is None
        else replace(sample, correct=score(prompts[sample.prompt_id], sample.text))
        for sample in samples
    )
