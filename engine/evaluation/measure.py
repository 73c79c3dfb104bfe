"""Measure one generation: clock readings, counters, real bytes, and marks that somebody else's clock can check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from engine.evaluation.selection import Prompt
from engine.protocols import Clock
from engine.reports import Counters, Memory, Sample, SamplePipe, Stages, loop_onset, token_digest
from engine.types import Step, StopReason


@dataclass(frozen=True, slots=True)
class Running:
    """One generation in progress: its steps, and how to read the bytes it holds."""

    steps: Iterator[Step]
    kv_bytes: Callable[[], int]
    drafter_bytes: Callable[[], int | None]
    speculative: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sample stands in its run."""

    launch: int
    order_index: int
    arm: str
    is_warmup: bool


@dataclass(slots=True)
class Measured:
    """A finished sample with what was skipped or refused while it ran, by reason."""

    sample: Sample
    skips: dict[str, int] = field(default_factory=dict)
    guards: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Instruments:
    """What measuring needs: a clock, the runner's pipe, the allocator's counter and a detokeniser."""

    clock: Clock
    pipe: SamplePipe
    allocator_active_bytes: Callable[[], int | None]
    decode_text: Callable[[tuple[int, ...]], str]


def measure(start: Callable[[], Running], prompt: Prompt, place: Place, instruments: Instruments) -> Measured:
    """Run one generation and return its sample.

    The device is idle when the sample starts. The first and the last token are on the host when they are marked, so
    ``decode_s`` covers exactly the tokens after the first, and a forward queued ahead of the last token is not charged.
    """
    clock, pipe = instruments.clock, instruments.pipe
    sample_id = f"{place.launch}/{place.order_index}/{place.arm}/{prompt.id}"
    log = _StepLog()
    peak_bytes = 0
    clock.now_ns()
    pipe.start(sample_id)
    began_ns = first_ns = last_ns = clock.host_ns()
    running = start()
    for step in running.steps:
        last_ns = clock.host_ns()
        if step.prefill:
            first_ns = last_ns
            pipe.first_token(sample_id)
            # A prefill's buffers may be larger than decoding's: that is the peak, not the resident size.
            peak_bytes = running.kv_bytes()
        log.add(step)
    digest = token_digest(log.tokens)
    pipe.end(sample_id, digest)
    kv_bytes = running.kv_bytes()
    sample = Sample(
        id=sample_id,
        prompt_id=prompt.id,
        prompt_digest=prompt.digest,
        kind=prompt.kind,
        launch=place.launch,
        order_index=place.order_index,
        is_warmup=place.is_warmup,
        prompt_tokens=len(prompt.ids),
        output_tokens=len(log.tokens),
        tokens=tuple(log.tokens),
        token_digest=digest,
        text=instruments.decode_text(tuple(log.tokens)),
        stop_reason=str(log.stop),
        stages=Stages(
            prefill_s=(first_ns - began_ns) / 1e9,
            decode_s=(last_ns - first_ns) / 1e9,
            total_s=(last_ns - began_ns) / 1e9,
        ),
        counters=log.counters(),
        memory=Memory(
            kv_bytes=kv_bytes,
            kv_bytes_peak=max(peak_bytes, kv_bytes),
            drafter_bytes=running.drafter_bytes(),
            allocator_active_bytes=instruments.allocator_active_bytes(),
        ),
        accepted_per_step=tuple(log.accepted) if running.speculative else None,
        drafted_per_step=tuple(log.drafted) if running.speculative else None,
        loop_onset=loop_onset(log.tokens),
        expected=prompt.expected,
    )
    return Measured(sample, log.skips, log.guards)


class _StepLog:
    """Sums of what the steps say; the prefill's step counts for its token and its synchronisation only."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.accepted: list[int] = []
        self.drafted: list[int] = []
        self.skips: dict[str, int] = {}
        self.guards: dict[str, int] = {}
        self.steps = self.target_forwards = self.drafter_forwards = self.host_syncs = 0
        self.stop: StopReason | None = None

    def add(self, step: Step) -> None:
        self.tokens.extend(step.tokens)
        self.host_syncs += step.host_syncs
        self.stop = step.stop
        if step.prefill:
            return
        self.steps += 1
        self.target_forwards += step.target_forwards
        self.drafter_forwards += step.drafter_forwards
        self.accepted.append(step.accepted)
        self.drafted.append(step.drafted)
        if step.skipped is not None:
            self.skips[step.skipped] = self.skips.get(step.skipped, 0) + 1
        if step.guard is not None:
            self.guards[step.guard] = self.guards.get(step.guard, 0) + 1

    def counters(self) -> Counters:
        return Counters(
            target_forwards=self.target_forwards,
            drafter_forwards=self.drafter_forwards,
            drafted_tokens=sum(self.drafted),
            accepted_tokens=sum(self.accepted),
            steps=self.steps,
            host_syncs=self.host_syncs,
            guard_rejections=sum(self.guards.values()),
        )
