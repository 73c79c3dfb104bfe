"""Quantised caches against the library's own cache: answers, bytes, decode time, and what the codes lose.

Every prompt meets every arm in a balanced, drawn order in one process. The baseline is the array library's own decoding
on its own cache; each other arm is the engine's pipelined decoding without a drafter on one quantised layout, so that
recall and bytes are those of the cache alone. What storing rows in codes changes is summed apart, over the rows that
the exact target made for the first measured prompts: the same values for every arm.

Rows of the report::

    {"errors": [{"arm", "layer", "side", "values", "bits", "error_sq", "reference_sq"}]}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.decoding.stopping import Stopping
from engine.drafters.none import NoDrafter
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement.arms import Running
from engine.measurement.measure import Instruments, Place, measure
from engine.measurement.schedule import balanced_orders, shuffled
from engine.measurement.selection import Prompt
from engine.reports import Arm, Sample
from engine.types import CacheLayout, StoredError

NATIVE = "native"
CANDIDATE_PATH = "engine.decoding.speculative:speculative"
ERROR_PROMPTS = 8
"""Prompts whose rows are coded to sum what that loses; rows of other prompts look alike."""


@dataclass(frozen=True, slots=True)
class QuantPlan:
    """What is measured. ``score`` says whether an answer is right; ``seed`` is the request digest."""

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
                raise UsageError(f"layout {layout} is not quantised; expected affine8, affine4 or one with /GROUP")
            engine.target.open((), layout)


@dataclass(frozen=True, slots=True)
class QuantResult:
    """The arms with their samples and the raw rows of the report."""

    arms: tuple[Arm, ...]
    errors: tuple[tuple[str, StoredError], ...]

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
    for index, (prompt, name, is_warmup) in enumerate(_sequence(plan, tuple(layouts))):
        stopping = Stopping(plan.max_new_tokens, plan.stop_ids)
        found = measure(
            _starting(engine, layouts[name], prompt, stopping, plan.chunk_tokens),
            prompt,
            Place(0, index, name, is_warmup),
            instruments,
        ).sample
        known = replace(found, correct=plan.score(prompt, found.text)) if prompt.expected is not None else found
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
    return QuantResult(arms, _errors(engine, plan))


def _sequence(plan: QuantPlan, arms: tuple[str, ...]) -> list[tuple[Prompt, str, bool]]:
    """Return every generation in order: warm-ups first, each on every arm."""
    listed = [(prompt, arm, True) for prompt in plan.warmups for arm in arms]
    prompts = shuffled(plan.measured, plan.seed, "prompts")
    orders = balanced_orders(arms, len(prompts), plan.seed)
    listed += [(prompt, arm, False) for prompt, order in zip(prompts, orders, strict=True) for arm in order]
    return listed


def _starting(
    engine: Engine, layout: CacheLayout | None, prompt: Prompt, stopping: Stopping, chunk_tokens: int
) -> Callable[[], Running]:
    """Return what begins one generation; ``layout`` None is the library's own decoding."""

    def start() -> Running:
        if layout is None:
            steps = engine.native.decode(prompt.ids, stopping, chunk_tokens)
            return Running(steps, engine.native.measured_bytes, lambda: None)
        sequence = engine.target.open((), layout)
        parts = Parts(sequence, NoDrafter(), engine.accept, FixedDepth(0), engine.backend.clock)
        return Running(speculative(parts, prompt.ids, stopping, chunk_tokens), sequence.measured_bytes, lambda: None)

    return start


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
