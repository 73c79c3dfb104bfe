"""From options to one launch's part of a report: what was loaded, under which settings, and what was measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.loading import Engine
from engine.measurement.arms import SPECULATIVE, ArmSettings
from engine.measurement.measure import Instruments
from engine.measurement.schedule import Profile
from engine.measurement.selection import Prompt, PromptSet
from engine.measurement.workload import LaunchPlan, run_launch
from engine.protocols import Backend
from engine.reports import Report, RunContext, Sample, SamplePipe
from engine.reports.context import machine_facts, thread_facts, utc_now
from engine.tokenizer import Tokenizer
from engine.types import CacheLayout, TargetInfo


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
        seed=context.request_digest,
        max_new_tokens=profile.max_new_tokens,
        stop_ids=stop_ids,
        settings=workload.settings,
    )
    instruments = Instruments(
        clock=clock,
        pipe=SamplePipe(context.pipe_fd),
        allocator_active_bytes=engine.backend.allocator_active_bytes,
        decode_text=tokenizer.decode,
    )
    result = run_launch(engine, plan, instruments, turn.heard)
    known = {prompt.id: prompt for prompt in (*measured, *warmups)}
    arms = tuple(replace(arm, samples=_scored(arm.samples, known, workload.score)) for arm in result.arms)
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
    return {name: getattr(target, name) for name in ("name", "digest", "format", "parameters", "vocab_size", "dtype")}


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
    """Return the report's ``environment``."""
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


def _scored(
    samples: tuple[Sample, ...], known: Mapping[str, Prompt], score: Callable[[Prompt, str], bool] | None
) -> tuple[Sample, ...]:
    """Return the samples with ``correct`` filled in where an answer is known."""
    if score is None:
        return samples
    return tuple(
        sample
        if known[sample.prompt_id].expected is None
        else replace(sample, correct=score(known[sample.prompt_id], sample.text))
        for sample in samples
    )
