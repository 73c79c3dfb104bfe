"""Which draft depth pays here: the same prompts decoded at each depth, in turns, before anything is measured.

A proposal chooses; it proves nothing. Its prompts are never those of a measurement, which would flatter the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.decoding.depth import FixedDepth
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement.arms import SPECULATIVE, ArmSettings, start, undrafted
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout

DEPTHS = (1, 3, 7, 15)
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """How the prompts of a trial are decoded, stop tokens ignored."""

    layout: CacheLayout = CacheLayout.NATIVE
    chunk_tokens: int = 512
    max_new_tokens: int = 48


@dataclass(frozen=True, slots=True)
class DepthTrial:
    """How long a depth took for ``tokens`` tokens after the first of each prompt; depth 0 is plain decoding."""

    depth: int
    tokens: int
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        """The rate of decoding."""
        return self.tokens / self.seconds


def try_depths(
    engine: Engine,
    prompts: Sequence[tuple[int, ...]],
    longest: int,
    settings: TrialSettings,
    heard: Callable[[str], None] = lambda _: None,
) -> tuple[DepthTrial, ...]:
    """Decode every prompt at depth 0 and at depths up to ``longest``, ``ROUNDS`` times; the fastest time counts.

    ``heard`` is told of every prompt before it is decoded, so that minutes of a large model are no silence.

    Raises:
        UsageError: If there is no drafter or no prompt, or nothing to time behind the first token.
    """
    if engine.drafter.info.name == "none" or not prompts:
        raise UsageError("no depth can be proposed without a drafter and a prompt; name a drafter with --drafter")
    if settings.max_new_tokens < 2:
        raise UsageError("no depth can be proposed by one token, the prompt's; expected --max-new of at least 2")
    depths = (0, *(depth for depth in DEPTHS if depth < longest), longest)
    best: dict[int, list[float]] = {depth: [float("inf")] * len(prompts) for depth in depths}
    tokens = [0] * len(prompts)
    for turn in range(ROUNDS):
        for index, ids in enumerate(prompts):
            heard(f"trying depths: prompt {index + 1} of {len(prompts)}, round {turn + 1} of {ROUNDS}")
            for depth in depths:
                tokens[index], seconds = _decode(engine, ids, depth, settings)
                best[depth][index] = min(best[depth][index], seconds)
    return tuple(DepthTrial(depth, sum(tokens), sum(times)) for depth, times in best.items())


def proposed(trials: Sequence[DepthTrial]) -> DepthTrial:
    """Return the trial of the fastest depth that drafts."""
    return max((trial for trial in trials if trial.depth), key=lambda trial: trial.tokens_per_s)


def described(trials: Sequence[DepthTrial]) -> str:
    """Return a proposal as a line: the depth, and how the depths compare with plain decoding."""
    plain = next(trial for trial in trials if trial.depth == 0)
    rates = ", ".join(
        f"{trial.depth}: {trial.tokens_per_s / plain.tokens_per_s:.2f}x" for trial in trials if trial.depth
    )
    return f"depth {proposed(trials).depth} (against plain decoding {rates})"


def _decode(engine: Engine, ids: tuple[int, ...], depth: int, settings: TrialSettings) -> tuple[int, float]:
    """Return how many tokens came after the first, and in how many seconds."""
    clock, stopping = engine.backend.clock, Stopping(settings.max_new_tokens)
    if depth:
        arm = ArmSettings(settings.layout, lambda: FixedDepth(depth), settings.chunk_tokens)
        running = start(engine, SPECULATIVE, arm, ids, stopping)
    else:
        running = undrafted(engine, settings.layout, ids, stopping, settings.chunk_tokens)
    first_ns = last_ns = clock.now_ns()
    for step in running.steps:
        last_ns = clock.host_ns()
        if step.prefill:
            first_ns = last_ns
    return len(stopping.emitted) - 1, (last_ns - first_ns) / 1e9
