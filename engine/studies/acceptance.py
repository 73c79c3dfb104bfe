"""How many draft tokens a target accepts when it completes raw code, as HumanEval asks for it.

No chat turn; a completion ends where it leaves its function. Both ways of decoding run on every prompt, so that the
acceptance belongs to output that is known to be the target's own. Depth is fixed at a whole block: every position of it
is then observed, and acceptance by position is unbiased.

Rows of the report: ``{"by_position": [{"position", "reached", "accepted"}]}``, where ``reached`` counts the drafts
whose earlier tokens were all accepted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompts
from engine.drafters.ngram import LONGEST_DRAFT
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement import arms as arm_module
from engine.measurement.arms import AUTOREGRESSIVE, ROLES, SPECULATIVE, ArmSettings
from engine.measurement.launch import LaunchWorkload, describe, fallbacks
from engine.measurement.measure import Instruments, Measured, SamplePlace, measure_sample
from engine.measurement.schedule import Profile, drawn
from engine.measurement.selection import Prompt, load_prompts
from engine.measurement.study import Study
from engine.options import add_model_options, add_report_options, open_selected, positive
from engine.reports import Arm, Fallback, RunContext, Sample
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.tokenizer import Tokenizer

PROFILES = {"smoke": (4, 1, 48), "claim": (60, 2, 256)}
"""Measured prompts (as many as the set has, at most this), warm-ups, tokens a prompt."""
STOP_STRINGS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n@")
"""Where a completion has left its function."""


@dataclass(frozen=True, slots=True)
class AcceptancePlan:
    """What is decoded, and how: ``settings`` fixes the depth, counted in drafted tokens by ``depth``."""

    prompts: Sequence[Prompt]
    warmups: Sequence[Prompt]
    max_new_tokens: int
    depth: int
    settings: ArmSettings
    stop_ids: frozenset[int]
    decode: Callable[[list[int]], str]

    def stopping(self) -> Stopping:
        """Return fresh stop rules for one sample."""
        return Stopping(self.max_new_tokens, self.stop_ids, STOP_STRINGS, self.decode)


@dataclass(frozen=True, slots=True)
class AcceptanceRun:
    """Arms with their samples, what fell back, and acceptance by position."""

    arms: tuple[Arm, ...]
    fallbacks: tuple[Fallback, ...]
    by_position: tuple[Mapping[str, int], ...]


def run_acceptance(
    engine: Engine, plan: AcceptancePlan, instruments: Instruments, heard: Callable[[Sample], None] = lambda _: None
) -> AcceptanceRun:
    """Decode every prompt both ways; ``heard`` learns of every finished sample.

    Raises:
        PromptError: If a prompt of the plan and its budget do not fit the target.
    """
    used = (*plan.warmups, *plan.prompts)
    check_prompts((prompt.ids for prompt in used), engine.target.info, plan.max_new_tokens)
    finished: dict[str, list[Measured]] = {AUTOREGRESSIVE: [], SPECULATIVE: []}
    listed = [(prompt, True) for prompt in plan.warmups] + [(prompt, False) for prompt in plan.prompts]
    turns = [(prompt, is_warmup, arm) for prompt, is_warmup in listed for arm in finished]
    instruments.pipe.plan(len(turns))
    for order, (prompt, is_warmup, arm) in enumerate(turns):
        measured = measure_sample(
            lambda arm=arm, prompt=prompt: arm_module.start(  # type: ignore[misc]
                engine, arm, plan.settings, prompt.ids, plan.stopping()
            ),
            prompt,
            SamplePlace(0, order, arm, is_warmup),
            instruments,
        )
        finished[arm].append(measured)
        heard(measured.sample)
    arms = tuple(
        Arm(arm, ROLES[arm], arm_module.code_path(engine, arm), tuple(item.sample for item in found))
        for arm, found in finished.items()
    )
    counted = [item.sample for item in finished[SPECULATIVE] if not item.sample.is_warmup]
    return AcceptanceRun(
        arms,
        tuple(fallbacks([item for found in finished.values() for item in found])),
        tuple(by_position(counted, plan.depth)),
    )


def fixed(depth: int) -> Callable[[], FixedDepth]:
    """Return a maker of the policy that always drafts ``depth`` tokens."""
    return lambda: FixedDepth(depth)


def by_position(samples: Sequence[Sample], depth: int) -> list[dict[str, int]]:
    """Return for each draft position how often it was reached and how often it was accepted."""
    rows = [{"position": place + 1, "reached": 0, "accepted": 0} for place in range(depth)]
    for sample in samples:
        for accepted, drafted in zip(sample.accepted_per_step or (), sample.drafted_per_step or (), strict=True):
            for place in range(min(accepted + 1, drafted)):
                rows[place]["reached"] += 1
                rows[place]["accepted"] += place < accepted
    return rows


def acceptance_length(samples: Iterable[Sample]) -> float:
    """Return committed tokens per target forward of the decode, the bonus included."""
    counted = tuple(samples)
    forwards = sum(item.counters.target_forwards for item in counted)
    committed = sum(item.counters.steps - item.idle_refusals + item.counters.accepted_tokens for item in counted)
    return committed / forwards if forwards else 0.0


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, and what they complete."""
    add_model_options(parser)
    add_report_options(parser, "acceptance.json")
    parser.add_argument("--set", default="code-raw", help="prompt set or file (default: %(default)s)")
    parser.add_argument("--prompts", type=positive, help="how many prompts (default: the profile's)")
    parser.add_argument("--max-new", type=positive, help="tokens a prompt (default: the profile's)")
    parser.add_argument("--depth", type=positive, help="drafted tokens per step (default: a whole block)")


def measure(options: argparse.Namespace) -> list[Sample]:
    """Complete raw code, write the report and return the measured samples.

    Raises:
        UsageError: If there is no drafter, or it cannot draft that deep.
    """
    context = RunContext.current(out=options.out, profile=options.profile)
    count, warmups, budget = PROFILES[context.profile]
    engine = open_selected(options)
    if engine.drafter.info.name == "none":
        raise UsageError("acceptance needs a drafter; give --drafter a DFlash folder or ngram")
    tokenizer = Tokenizer(engine.folder)
    prompts = load_prompts(options.set, tokenizer, engine.target.info.name)
    # A small set is measured whole; how many prompts there were is in the report.
    available = max(len(prompts.prompts) - warmups, 1)
    chosen, warm = prompts.select(0, 1, options.prompts or min(count, available), warmups)
    measured = drawn({prompt.id: prompt for prompt in chosen}, context.nonce, 0)
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
    instruments = Instruments.of(engine.backend, tokenizer, context.pipe_fd)

    def run() -> tuple[tuple[Sample, ...], dict[str, Any]]:
        found = run_acceptance(engine, plan, instruments, _show)
        counted = tuple(item for arm in found.arms if arm.name == SPECULATIVE for item in arm.samples)
        rows = {"by_position": [dict(row) for row in found.by_position]}
        return counted, {"arms": found.arms, "fallbacks": found.fallbacks, "rows": rows}

    workload = LaunchWorkload(
        kind="acceptance",
        prompts=prompts,
        profile=Profile("acceptance", (AUTOREGRESSIVE, SPECULATIVE), len(measured), 0, budget),
        stop="natural",
        settings=plan.settings,
        depth={"policy": "fixed", "tokens": depth},
    )
    config = describe(engine, workload, plan.stop_ids)
    samples = Study("acceptance", engine.backend, config, context, options.report).write(run)
    return [sample for sample in samples if not sample.is_warmup]


def report(samples: list[Sample]) -> None:
    """Print the acceptance length over the measured samples."""
    length = acceptance_length(samples)
    print(f"{length:.2f} committed tokens per target forward over {len(samples)} prompts of this run")


def _show(sample: Sample) -> None:
    counters = sample.counters
    print(f"{sample.id}: {sample.output_tokens} tokens in {counters.target_forwards} forwards", flush=True)


COMMAND = StudyCommand(
    "Complete raw code as HumanEval asks for it and count what the target accepts.", options, measure, report
)
