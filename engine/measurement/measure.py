"""Measure one generation: clock readings, counters, real bytes, and marks that the runner's clock can check."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.measurement.arms import Running
from engine.measurement.selection import Prompt
from engine.protocols import Backend, Clock
from engine.reports import Counters, Memory, Sample, SamplePipe, Stages, loop_onset, token_digest
from engine.tokenizer import Tokenizer
from engine.types import Step, StopReason


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """Where a sample stands in its run."""

    launch: int
    order_index: int
    arm: str
    is_warmup: bool

    def sample_id(self, prompt: Prompt) -> str:
        """Return the sample's name in the report and on the pipe, unique over the run."""
        return f"{self.launch}/{self.order_index}/{self.arm}/{prompt.id}"


@dataclass(slots=True)
class Measured:
    """A finished sample with what was skipped, refused or run otherwise than asked, by reason."""

    sample: Sample
    skips: dict[str, int] = field(default_factory=dict)
    guards: dict[str, int] = field(default_factory=dict)
    forwards: dict[str, int] = field(default_factory=dict)

    def by_component(self) -> tuple[tuple[str, dict[str, int]], ...]:
        """Return the reasons under the names that a report's fallbacks give their components."""
        return ("drafter", self.skips), ("target", self.guards), ("graphs", self.forwards)


class HostClock:
    """Time in a process that decodes nothing itself: there is no device to wait for."""

    eager = False
    """What runs runs elsewhere: nothing here can tell its parts apart."""

    def now_ns(self) -> int:
        """Read the clock; nothing runs here that could be waited for."""
        return time.perf_counter_ns()

    def host_ns(self) -> int:
        """Read the clock without waiting."""
        return time.perf_counter_ns()


@dataclass(frozen=True, slots=True)
class Instruments:
    """What measuring needs: a clock, the runner's pipe, the allocator's counter and a detokeniser."""

    clock: Clock
    pipe: SamplePipe
    allocator_active_bytes: Callable[[], int | None]
    decode_text: Callable[[tuple[int, ...]], str]

    @classmethod
    def of(cls, backend: Backend, tokenizer: Tokenizer, pipe_fd: int | None = None) -> Instruments:
        """Return the instruments of a backend; without a pipe samples are not announced."""
        return cls(backend.clock, SamplePipe(pipe_fd), backend.allocator_active_bytes, tokenizer.decode)


def measure_sample(
    start: Callable[[], Running], prompt: Prompt, place: SamplePlace, instruments: Instruments
) -> Measured:
    """Run one generation and return its sample.

    The device is idle when the sample starts. The first and the last token are on the host when they are marked, so
    ``decode_s`` covers exactly the tokens after the first, and a forward queued ahead of the last token is not charged.
    """
    clock, pipe = instruments.clock, instruments.pipe
    sample_id = place.sample_id(prompt)
    log = _StepLog()
    prefill_bytes = 0
    clock.now_ns()
    pipe.start(sample_id)
    began_ns = first_ns = last_ns = clock.host_ns()
    running = start()
    for step in running.steps:
        last_ns = clock.host_ns()
        if step.prefill:
            first_ns = last_ns
            pipe.first_token(sample_id)
            prefill_bytes = running.kv_bytes()
        log.add(step)
    pipe.end(sample_id, token_digest(log.tokens))
    stages = _stages((first_ns - began_ns) / 1e9, (last_ns - first_ns) / 1e9)
    memory = _memory(running, prefill_bytes, instruments)
    text = instruments.decode_text(tuple(log.tokens))
    sample = _sample(prompt, place, log, (stages, memory), text)
    return Measured(sample, log.skips, log.guards, dict(running.fallbacks()))


class HeldSample:
    """A generation that is held between turns: only the time of its own turns counts, its queued work included.

    Args:
        running: The generation; nothing of it has run.
        prompt: What is decoded.
        instruments: Clock, allocator and detokeniser; the pipe is not used, whoever hands out turns stamps them.
    """

    def __init__(self, running: Running, prompt: Prompt, instruments: Instruments) -> None:
        self._running, self._prompt, self._instruments = running, prompt, instruments
        self._log = _StepLog()
        self._prefill_ns = self._decode_ns = self._prefill_bytes = 0
        self._memory: Memory | None = None

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return len(self._log.tokens)

    @property
    def over(self) -> bool:
        """Whether it came to its end."""
        return self._memory is not None

    @property
    def decode_s(self) -> float:
        """The seconds of its own turns so far, without the prefill's."""
        return self._decode_ns / 1e9

    def prefill(self) -> None:
        """Forward the prompt and take its first token."""
        self._prefill_ns = self._advance(1)
        self._prefill_bytes = self._running.kv_bytes()

    def decode(self, tokens: int | None) -> None:
        """Take steps until there are ``tokens`` tokens in all, None for the end."""
        self._decode_ns += self._advance(tokens)

    def _advance(self, tokens: int | None) -> int:
        """Take steps and return the nanoseconds until the device was idle again."""
        clock, ended = self._instruments.clock, False
        began_ns = clock.now_ns()
        while not ended and (tokens is None or self.tokens < tokens):
            step = next(self._running.steps, None)
            if step is not None:
                self._log.add(step)
            ended = step is None or (step.stop is not None and next(self._running.steps, None) is None)
        spent_ns = clock.now_ns() - began_ns
        if ended:  # now, while its cache is the newest one
            self._memory = _memory(self._running, self._prefill_bytes, self._instruments)
        return spent_ns

    def finished(self, place: SamplePlace) -> Measured:
        """Return the sample.

        Raises:
            ValueError: it is not over.
        """
        log, running = self._log, self._running
        stages = _stages(self._prefill_ns / 1e9, self._decode_ns / 1e9)
        if self._memory is None:
            raise ValueError(f"{place.sample_id(self._prompt)} was held after {self.tokens} tokens")
        text = self._instruments.decode_text(tuple(log.tokens))
        sample = _sample(self._prompt, place, log, (stages, self._memory), text)
        return Measured(sample, log.skips, log.guards, dict(running.fallbacks()))


def _stages(prefill_s: float, decode_s: float) -> Stages:
    return Stages(prefill_s=prefill_s, decode_s=decode_s, total_s=prefill_s + decode_s)


def _memory(running: Running, prefill_bytes: int, instruments: Instruments) -> Memory:
    kv_bytes = running.kv_bytes()
    return Memory(
        kv_bytes=kv_bytes,
        # A prefill's buffers may be larger than decoding's: that is the peak, not the resident size.
        kv_bytes_peak=max(prefill_bytes, kv_bytes),
        drafter_bytes=running.drafter_bytes(),
        allocator_active_bytes=instruments.allocator_active_bytes(),
    )


def _sample(prompt: Prompt, place: SamplePlace, log: _StepLog, readings: tuple[Stages, Memory], text: str) -> Sample:
    stages, memory = readings
    drafts = memory.drafter_bytes is not None
    return Sample(
        id=place.sample_id(prompt),
        prompt_id=prompt.id,
        prompt_digest=prompt.digest,
        kind=prompt.kind,
        launch=place.launch,
        order_index=place.order_index,
        is_warmup=place.is_warmup,
        prompt_tokens=len(prompt.ids),
        output_tokens=len(log.tokens),
        tokens=tuple(log.tokens),
        token_digest=token_digest(log.tokens),
        text=text,
        stop_reason=str(log.stop),
        stages=stages,
        counters=log.counters(),
        memory=memory,
        accepted_per_step=tuple(log.accepted) if drafts else None,
        drafted_per_step=tuple(log.drafted) if drafts else None,
        loop_onset=loop_onset(log.tokens),
        expected=prompt.expected,
        prompt_ids=prompt.ids,
    )


class _StepLog:
    """Sums of what the steps say; the prefill's step counts for its token and its synchronisation only."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.accepted: list[int] = []
        self.drafted: list[int] = []
        self.skips: dict[str, int] = {}
        self.guards: dict[str, int] = {}
        self.steps = self.target_forwards = self.drafter_forwards = self.host_syncs = self.shadow_drafts = 0
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
        self.shadow_drafts += step.shadowed > 0
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
            shadow_drafts=self.shadow_drafts,
        )
