"""Measure untrusted code from outside: prompts drawn after the start, our clock, our baseline, our oracle.

The baseline runs in this process while the peer stands still, and is the oracle too: greedy native decoding of the same
prompts. What is not seen from outside, a peer's steps and bytes, is 0 in its samples and no claim rests on it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.decoding.prompt import check_prompts
from engine.errors import UsageError
from engine.isolation import answering
from engine.isolation.peers import Ends, PipedPeer
from engine.loading import Engine
from engine.measurement import arms as arm_module
from engine.measurement.arms import AUTOREGRESSIVE, AUTOREGRESSIVE_AGAIN, PEER, ArmSettings
from engine.measurement.drawn_prompts import draw, drawn_prompts, words_of
from engine.measurement.launch import (
    LaunchPlan,
    LaunchWorkload,
    arm_of,
    describe,
    environment,
    sequence,
    top2_margin,
    with_margins,
)
from engine.measurement.measure import Instruments, Measured, SamplePlace, measure_sample
from engine.measurement.schedule import Profile, profile_of
from engine.measurement.selection import Prompt, read_packaged
from engine.options import (
    DEFAULT_DEPTH,
    add_chunk_option,
    add_launch_options,
    add_model_options,
    cache_layout,
    check_launch,
    depth_factory,
    open_selected,
    positive,
)
from engine.reports import Counters, Memory, Report, ReportClaim, RunContext, Sample, write_report
from engine.reports.context import utc_now
from engine.reports.parts import merge, part_name, read_parts, remove_parts
from engine.reports.summary import measured as measured_samples
from engine.stopping import Stopping
from engine.studies.command import StudyCommand, show
from engine.tokenizer import Tokenizer

KIND = "request_code"
WORDS_OF = "code-structured"
"""The prompt set whose words prompts are drawn from."""
CODE_PATH = "engine.isolation.peers:PipedPeer"
ARMS = {"smoke": (AUTOREGRESSIVE, PEER), "claim": (AUTOREGRESSIVE, AUTOREGRESSIVE_AGAIN, PEER)}
_UNSEEN = Counters(
    target_forwards=0, drafter_forwards=0, drafted_tokens=0, accepted_tokens=0, steps=0, host_syncs=0,
    guard_rejections=0,
)  # fmt: skip
_NO_BYTES = Memory(kv_bytes=0, kv_bytes_peak=None, drafter_bytes=None, allocator_active_bytes=None)


@dataclass(frozen=True, slots=True)
class Asking:
    """What one launch asks.

    Attributes:
        nonce: of this launch, from the runner.
        words: what prompts are drawn from.
    """

    launch: int
    nonce: str
    words: tuple[str, ...]
    profile: Profile
    settings: ArmSettings


@dataclass(frozen=True, slots=True)
class Sides:
    """Who decodes: our own engine, which knows no drafter, and the peer."""

    engine: Engine
    tokenizer: Tokenizer
    peer: PipedPeer


def run_launch(
    sides: Sides, asking: Asking, context: RunContext, heard: Callable[[Sample], None] = lambda _: None
) -> Report:
    """Measure one launch and return its part.

    Raises:
        PromptError: a drawn prompt and the budget do not fit the target.
        PeerError: the peer did not keep to the protocol, or the runner could not stop it.
    """
    engine, tokenizer, profile = sides.engine, sides.tokenizer, asking.profile
    clock = engine.backend.clock
    started_at, began_ns = utc_now(), clock.host_ns()
    count = profile.prompts_per_launch + profile.warmups
    drawn = drawn_prompts(asking.nonce, asking.launch, count, asking.words, tokenizer)
    check_prompts((prompt.ids for prompt in drawn.prompts), engine.target.info, profile.max_new_tokens)
    measured, warmups = drawn.prompts[: profile.prompts_per_launch], drawn.prompts[profile.prompts_per_launch :]
    plan = LaunchPlan(
        arms=profile.arms, measured=measured, warmups=warmups, launch=asking.launch, seed=context.nonce,
        max_new_tokens=profile.max_new_tokens, stop_ids=frozenset(engine.target.info.stop_ids),
        settings=asking.settings,
    )  # fmt: skip
    stop = "natural" if plan.stop_ids else "budget"
    workload = LaunchWorkload(KIND, drawn, profile, stop, asking.settings, {})
    instruments = Instruments.of(engine.backend, tokenizer, context.pipe_fd)
    sides.peer.open()
    finished: list[Measured] = []
    listed = sequence(plan.arms, plan.measured, plan.warmups, plan.seed, plan.launch)
    instruments.pipe.plan(len(listed))
    for index, (prompt, arm, is_warmup) in enumerate(listed):
        place = SamplePlace(plan.launch, index, arm, is_warmup)
        one = _one_of_peer if arm == PEER else _one_of_ours
        finished.append(one(sides, plan, (prompt, place), instruments))
        heard(finished[-1].sample)
    prompts = {prompt.id: prompt.ids for prompt in drawn.prompts}
    samples = with_margins(finished, prompts, plan.arms[0], lambda ids: top2_margin(engine, ids, plan.settings))
    texts = [
        {"id": prompt.id, "text": draw(asking.nonce, index, asking.words)} for index, prompt in enumerate(drawn.prompts)
    ]
    return Report(
        kind=KIND,
        config=describe(engine, workload, plan.stop_ids),
        environment=environment(engine.backend),
        started_at=started_at,
        ended_at=utc_now(),
        wall_s=(clock.host_ns() - began_ns) / 1e9,
        arms=tuple(
            arm_of(name, CODE_PATH if name == PEER else engine.native.code_path, samples) for name in profile.arms
        ),
        fallbacks=(),
        rows={
            "words": list(asking.words),
            "launches": [{"launch": asking.launch, "nonce": asking.nonce, "prompts": texts}],
        },
    )


def _one_of_ours(
    sides: Sides, plan: LaunchPlan, what: tuple[Prompt, SamplePlace], instruments: Instruments
) -> Measured:
    """Decode with the library's own loop while the peer stands still."""
    prompt, place = what
    stopping = Stopping(budget_tokens=plan.max_new_tokens, stop_ids=plan.stop_ids)
    sides.peer.hold()
    try:
        return measure_sample(
            lambda: arm_module.start(sides.engine, place.arm, plan.settings, prompt.ids, stopping),
            prompt,
            place,
            instruments,
        )
    finally:
        sides.peer.release()


def _one_of_peer(
    sides: Sides, plan: LaunchPlan, what: tuple[Prompt, SamplePlace], instruments: Instruments
) -> Measured:
    prompt, place = what
    item = measure_sample(
        lambda: sides.peer.start(prompt.ids, plan.max_new_tokens, plan.stop_ids), prompt, place, instruments
    )
    return Measured(replace(item.sample, counters=_UNSEEN, memory=_NO_BYTES))


def joined_rows(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of the report of all launches."""
    launches = [launch for part in parts for launch in part["rows"]["launches"]]
    return {"words": parts[0]["rows"]["words"], "launches": launches}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, and which launch this is."""
    add_model_options(parser)
    parser.add_argument("--max-new", type=positive, help="token budget (default: the profile's)")
    add_chunk_option(parser)
    add_launch_options(parser)


def measure(options: argparse.Namespace) -> None:
    """Ask the peer of this command, measure what it answers and write the part.

    Raises:
        UsageError: If no runner started this command.
    """
    check_launch(options)
    ends, nonce = Ends.from_environment(os.environ), os.environ.get("KAKEYA_NONCE", "")
    if not nonce:
        raise UsageError("KAKEYA_NONCE is not set; the runner draws it when the command begins")
    context = RunContext.current()
    options.drafter, options.cache = "none", "native"
    engine = open_selected(options)
    make_depth, _ = depth_factory("0", engine)
    settings = ArmSettings(cache_layout(options, lossless=True), make_depth, options.prefill_chunk)
    rows = json.loads(read_packaged(WORDS_OF))["prompts"]
    words = words_of(tuple(row["text"] for row in rows))
    profile = profile_of(context.profile, ARMS, options.max_new)
    asking = Asking(options.launch, nonce, words, profile, settings)
    print(f"launch {options.launch + 1} of {options.launches}: {engine.target.info.name}, asking a peer", flush=True)
    peer = PipedPeer(ends, engine.target.info.vocab_size)
    sides = Sides(engine, Tokenizer(engine.folder), peer)
    part = run_launch(sides, asking, context, show)
    write_report(part, context, part_name(options.launch))


def answer_options(parser: argparse.ArgumentParser) -> None:
    """Add the models and how the answering side decodes."""
    add_model_options(parser)
    parser.add_argument("--depth", default=str(DEFAULT_DEPTH), help="drafted tokens per step (default: %(default)s)")
    add_chunk_option(parser)


def answer(options: argparse.Namespace) -> None:
    """Decode what is asked over the runner's pipes until the asking side closes its pipe.

    Raises:
        UsageError: If no runner started this command.
    """
    asks, replies = (os.environ.get(f"KAKEYA_PEER_{name}", "") for name in ("ASK", "REPLY"))
    if not (asks.isdigit() and replies.isdigit()):
        raise UsageError("KAKEYA_PEER_ASK and KAKEYA_PEER_REPLY are not set; a runner starts this side too")
    options.cache = "native"
    answering.answer(
        int(asks),
        int(replies),
        lambda: open_selected(options),
        lambda engine: ArmSettings(
            cache_layout(options), depth_factory(options.depth, engine)[0], options.prefill_chunk
        ),
    )


def assemble_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of joining."""
    parser.add_argument("--report", default="report.json", help="name of the report (default: %(default)s)")


def assemble(options: argparse.Namespace) -> ReportClaim:
    """Join the launches, write the report and return what it states."""
    context = RunContext.current()
    parts = read_parts(context.out, {KIND})
    joined = replace(merge(parts), rows=joined_rows(parts))
    claim = stated(joined)
    write_report(replace(joined, claims=(claim,)), context, options.report)
    remove_parts(context.out)
    return claim


def report(claim: ReportClaim) -> None:
    """Print what the report states."""
    print(f"native decoding / peer, prompt to last token: {claim.value:.3f}x; the gate says what may be said of it")


def stated(report: Report) -> ReportClaim:
    """Return what the report states: total time of the baseline, mean over its arms, over the peer's."""
    *ours, peer = report.arms
    theirs_s = sum(sample.stages.total_s for sample in measured_samples(peer))
    ours_s = sum(sample.stages.total_s for arm in ours for sample in measured_samples(arm)) / len(ours)
    names = (peer.name, *(arm.name for arm in ours))
    return ReportClaim("total_speedup", "total_speedup", names, ours_s / theirs_s, "ratio")


LAUNCH = StudyCommand(
    "Ask the peer of this command and measure what it answers; exit 0 when the part is written.", options, measure
)
ANSWER = StudyCommand(
    "Decode what is asked over the runner's pipes; exit 0 when the asking side closes its pipe.", answer_options, answer
)
ASSEMBLE = StudyCommand(
    "Join the launches; exit 0 when the report is written and the parts are gone.", assemble_options, assemble, report
)
