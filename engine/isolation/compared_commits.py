"""What two commits are compared by: the sides of a launch, and the report of what they did.

Knows no order and no turns: who measures says what came first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine.decoding.prompt import check_prompts
from engine.errors import ModelMismatchError, UsageError
from engine.isolation.checkouts import Opening, Side
from engine.measurement.arms import BASE, HEAD
from engine.measurement.launch import arm_of, fallbacks, with_margins
from engine.measurement.measure import HostClock, Measured
from engine.measurement.schedule import Profile
from engine.measurement.selection import Prompt, PromptSet
from engine.reports import Report
from engine.reports.context import machine_facts, thread_facts, utc_now
from engine.tokenizer import Tokenizer
from engine.types import TargetInfo

KIND = "commit_comparison"


@dataclass(frozen=True, slots=True)
class Commits:
    """What is compared.

    Attributes:
        folder: holds the checkouts, as `base` and `head`.
        margin: by how much the head must be slower before it is called slower, as a share.
    """

    base: str
    head: str
    folder: Path
    margin: float

    def checkout(self, arm: str) -> Path:
        """Return the checkout an arm runs."""
        return self.folder / (HEAD if arm == HEAD else BASE)


@dataclass(frozen=True, slots=True)
class ComparedWork:
    """What both codes are to do."""

    opening: Opening
    prompts: PromptSet
    profile: Profile
    tokenizer: Tokenizer


def check(commits: Commits) -> None:
    """Refuse what cannot be compared.

    Raises:
        UsageError: one commit twice, or a margin that is none.
    """
    if commits.base == commits.head:
        raise UsageError(f"base and head are the same commit, {commits.base[:12]}; name an earlier one as base")
    if not 0 < commits.margin <= 0.5:
        raise UsageError(f"margin {commits.margin:g}; expected more than 0 and at most 0.5")


def open_sides(
    stack: ExitStack, commits: Commits, work: ComparedWork, prompts: Sequence[Prompt]
) -> tuple[dict[str, Side], Mapping[str, Any]]:
    """Start every side until the stack ends; return them and what all say of models and device."""
    sides = {}
    for arm in work.profile.arms:
        sides[arm] = Side(arm, commits.checkout(arm), work.opening)
        stack.callback(sides[arm].close)
    facts = _agreed(sides)
    target = _target_info(facts["target"])
    if target is not None:
        check_prompts((prompt.ids for prompt in prompts), target, work.profile.max_new_tokens)
    return sides, facts


def report_of(
    commits: Commits,
    work: ComparedWork,
    sides: Mapping[str, Side],
    *,
    prompts: Sequence[Prompt],
    finished: Sequence[Measured],
    began: tuple[str, int],
    **rows: Any,
) -> Report:
    """Return what a launch measured that began at this moment, by wall and host clock."""
    facts = sides[BASE].facts
    samples = with_margins(list(finished), {prompt.id: prompt.ids for prompt in prompts}, BASE, sides[BASE].margin)
    config = {"base_commit": commits.base, "head_commit": commits.head, "slower_margin": commits.margin}
    return Report(
        kind=KIND,
        config=_config(facts, work) | config,
        environment=_environment(facts),
        started_at=began[0],
        ended_at=utc_now(),
        wall_s=(HostClock().host_ns() - began[1]) / 1e9,
        arms=tuple(arm_of(arm, sides[arm].facts["code_path"], samples) for arm in work.profile.arms),
        fallbacks=tuple(fallbacks(list(finished))),
        rows={"trees": {arm: _tree(commits, sides[arm]) for arm in (BASE, HEAD)}} | rows,
    )


def _tree(commits: Commits, side: Side) -> dict[str, str]:
    commit = commits.head if side.arm == HEAD else commits.base
    return {"commit": commit, "imported": side.imported(), "sources_sha256": side.sources_digest()}


def _agreed(sides: Mapping[str, Side]) -> Mapping[str, Any]:
    """Return what every side says of models and device.

    Raises:
        ModelMismatchError: they differ.
    """
    facts = [side.facts for side in sides.values()]
    for name in ("target", "drafter", "depth", "backend", "device"):
        if any(side_facts[name] != facts[0][name] for side_facts in facts):
            raise ModelMismatchError(
                f"base and head see another {name}: {facts[0][name]} and {facts[-1][name]}; their times would be of "
                "different work"
            )
    return facts[0]


def _target_info(target: Mapping[str, Any]) -> TargetInfo | None:
    """Return what a side says of the target, None from a checkout that says less than this engine does."""
    names = [field.name for field in fields(TargetInfo)]
    try:
        return TargetInfo(**{name: target[name] for name in names if name in target})
    except TypeError:  # an older commit that names less than a target is made of
        return None


def _config(facts: Mapping[str, Any], work: ComparedWork) -> dict[str, Any]:
    target, depth = facts["target"], int(facts["depth"])
    stop_ids = sorted(target["stop_ids"])
    return {
        "target": {name: target[name] for name in ("name", "digest", "format", "parameters", "vocab_size", "dtype")},
        "drafter": dict(facts["drafter"]),
        "block_size": depth + 1,
        "cache_layout": "native",
        "max_new_tokens": work.profile.max_new_tokens,
        "stop": "natural" if stop_ids else "budget",
        "stopping_ids": stop_ids,
        "seed": 0,
        "dtype": target["dtype"],
        "depth": {"policy": "fixed", "tokens": depth},
        "prompt_set": work.prompts.name,
        "prompt_rule": work.prompts.rule,
        "prefill_chunk_tokens": work.opening.chunk_tokens,
    }


def _environment(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "backend": facts["backend"],
        "device": facts["device"],
        **machine_facts(),
        "versions": dict(facts["versions"]),
        "blas": facts["blas"],
        "threads": thread_facts(os.environ),
    }
