"""Measure code nobody trusts from outside: prompts drawn after the start, our clock, our baseline, our oracle.

The baseline runs in this process while the peer stands still, and is the oracle too: greedy native decoding of the same
prompts. What is not seen from outside, a peer's steps and bytes, is 0 in its samples and claimed by nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.decoding.prompt import check_prompts
from engine.decoding.stopping import Stopping
from engine.isolation.peers import Peer
from engine.loading import Engine
from engine.measurement import arms as arm_module
from engine.measurement.arms import AUTOREGRESSIVE, AUTOREGRESSIVE_AGAIN, PEER, ROLES, ArmSettings
from engine.measurement.drawn_prompts import draw, drawn_prompts
from engine.measurement.launch import environment
from engine.measurement.measure import Instruments, Measured, Place, measure
from engine.measurement.schedule import PROFILES, Profile
from engine.measurement.selection import Prompt
from engine.measurement.workload import Plan, sequence, with_margins
from engine.reports import Arm, Counters, Memory, Report, RunContext, Sample, SamplePipe
from engine.reports.context import utc_now
from engine.tokenizer import Tokenizer

KIND = "request_code"
CODE_PATH = "engine.isolation.peers:Peer"
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


def profile_of(name: str, max_new_tokens: int | None) -> Profile:
    """Return how much a profile measures, for these arms."""
    profile = PROFILES[name]
    return replace(profile, arms=ARMS[name], max_new_tokens=max_new_tokens or profile.max_new_tokens)


@dataclass(frozen=True, slots=True)
class Sides:
    """Who decodes: our own engine, which knows no drafter, and the peer."""

    engine: Engine
    tokenizer: Tokenizer
    peer: Peer


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
    plan = Plan(
        arms=profile.arms, measured=measured, warmups=warmups, launch=asking.launch, seed=context.request_digest,
        max_new_tokens=profile.max_new_tokens, stop_ids=frozenset(engine.target.info.stop_ids),
        settings=asking.settings,
    )  # fmt: skip
    instruments = Instruments(
        clock=clock, pipe=SamplePipe(context.pipe_fd), decode_text=tokenizer.decode,
        allocator_active_bytes=engine.backend.allocator_active_bytes,
    )  # fmt: skip
    sides.peer.open()
    finished: list[Measured] = []
    for index, (prompt, arm, is_warmup) in enumerate(
        sequence(plan.arms, plan.measured, plan.warmups, plan.seed, plan.launch)
    ):
        place = Place(plan.launch, index, arm, is_warmup)
        one = _one_of_peer if arm == PEER else _one_of_ours
        finished.append(one(sides, plan, (prompt, place), instruments))
        heard(finished[-1].sample)
    samples = with_margins(engine, plan, finished)
    texts = [
        {"id": prompt.id, "text": draw(asking.nonce, index, asking.words)} for index, prompt in enumerate(drawn.prompts)
    ]
    return Report(
        kind=KIND,
        config=_config(engine, asking, drawn.name, drawn.rule),
        environment=environment(engine.backend),
        started_at=started_at,
        ended_at=utc_now(),
        wall_s=(clock.host_ns() - began_ns) / 1e9,
        arms=tuple(_arm(engine, name, samples) for name in profile.arms),
        fallbacks=(),
        rows={
            "words": list(asking.words),
            "launches": [{"launch": asking.launch, "nonce": asking.nonce, "prompts": texts}],
        },
    )


def _one_of_ours(sides: Sides, plan: Plan, what: tuple[Prompt, Place], instruments: Instruments) -> Measured:
    """Decode with the library's own loop while the peer stands still."""
    prompt, place = what
    stopping = Stopping(budget_tokens=plan.max_new_tokens, stop_ids=plan.stop_ids)
    sides.peer.hold()
    try:
        return measure(
            lambda: arm_module.start(sides.engine, place.arm, plan.settings, prompt.ids, stopping),
            prompt,
            place,
            instruments,
        )
    finally:
        sides.peer.release()


def _one_of_peer(sides: Sides, plan: Plan, what: tuple[Prompt, Place], instruments: Instruments) -> Measured:
    prompt, place = what
    item = measure(lambda: sides.peer.start(prompt.ids, plan.max_new_tokens, plan.stop_ids), prompt, place, instruments)
    return Measured(replace(item.sample, counters=_UNSEEN, memory=_NO_BYTES))


def _arm(engine: Engine, name: str, samples: list[Sample]) -> Arm:
    path = CODE_PATH if name == PEER else engine.native.code_path
    return Arm(name, ROLES[name], path, tuple(one for one in samples if one.id.split("/")[2] == name))


def _config(engine: Engine, asking: Asking, name: str, rule: str) -> dict[str, Any]:
    target = engine.target.info
    stop_ids = sorted(target.stop_ids)
    return {
        "target": {
            field: getattr(target, field) for field in ("name", "digest", "format", "parameters", "vocab_size", "dtype")
        },
        "drafter": None,
        "block_size": None,
        "cache_layout": str(asking.settings.layout),
        "max_new_tokens": asking.profile.max_new_tokens,
        "stop": "natural" if stop_ids else "budget",
        "stopping_ids": stop_ids,
        "seed": 0,
        "dtype": target.dtype,
        "depth": None,
        "prompt_set": name,
        "prompt_rule": rule,
        "prefill_chunk_tokens": asking.settings.chunk_tokens,
    }


def joined_rows(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows of the report of all launches."""
    launches = [launch for part in parts for launch in part["rows"]["launches"]]
    return {"words": parts[0]["rows"]["words"], "launches": launches}
