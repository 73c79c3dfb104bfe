"""How many draft tokens a target accepts when it completes raw code, as HumanEval asks for it.

No chat turn; a completion ends where it leaves its function. Both ways of decoding run on every prompt, so that the
acceptance belongs to output that is known to be the target's own. Depth is fixed at a whole block: every position of it
is then observed, and acceptance by position is unbiased.

Rows of the report: ``{"by_position": [{"position", "reached", "accepted"}]}``, where ``reached`` counts the drafts
whose earlier tokens were all accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.decoding.depth import FixedDepth
from engine.decoding.prompt import check_prompts
from engine.decoding.stopping import Stopping
from engine.loading import Engine
from engine.measurement import arms as arm_module
from engine.measurement.arms import AUTOREGRESSIVE, ROLES, SPECULATIVE, ArmSettings
from engine.measurement.measure import Instruments, Measured, Place, measure
from engine.measurement.selection import Prompt
from engine.reports import Arm, Fallback, Sample

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
    for order, (prompt, is_warmup, arm) in enumerate(turns):
        measured = measure(
            lambda arm=arm, prompt=prompt: arm_module.start(  # type: ignore[misc]
                engine, arm, plan.settings, prompt.ids, plan.stopping()
            ),
            prompt,
            Place(0, order, arm, is_warmup),
            instruments,
        )
        finished[arm].append(measured)
        heard(measured.sample)
    arms = tuple(
        Arm(arm, ROLES[arm], arm_module.code_path(engine, arm), tuple(item.sample for item in found))
        for arm, found in finished.items()
    )
    counted = [item.sample for item in finished[SPECULATIVE] if not item.sample.is_warmup]
    return AcceptanceRun(arms, tuple(_fallbacks(finished)), tuple(by_position(counted, plan.depth)))


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


def _fallbacks(finished: Mapping[str, Sequence[Measured]]) -> list[Fallback]:
    return [
        Fallback(arm, component, item.sample.id, reason, count)
        for arm, found in finished.items()
        for item in found
        for component, reasons in item.by_component()
        for reason, count in sorted(reasons.items())
    ]
