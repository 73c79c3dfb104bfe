"""A sample is clock readings and counters, taken where things happen."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

from engine.measurement.arms import Running
from engine.measurement.measure import Instruments, SamplePlace, measure_sample
from engine.measurement.selection import Prompt
from engine.reports import SamplePipe, token_digest
from engine.types import Step, StopReason

PROMPT = Prompt("p1", "structured", (5, 6, 7), token_digest((5, 6, 7)), expected="x")


class TickingClock:
    """A clock that only moves when work is done."""

    def __init__(self) -> None:
        self.ns = 0

    def work(self, milliseconds: int) -> None:
        self.ns += milliseconds * 1_000_000

    eager = False

    def now_ns(self) -> int:
        return self.ns

    def host_ns(self) -> int:
        return self.ns


def step(tokens: tuple[int, ...], drafted: int = 0, accepted: int = 0, **values: object) -> Step:
    defaults = {"committed": accepted + 1, "position": 0, "target_forwards": 1, "host_syncs": 1}
    return Step(tokens, drafted, accepted, **(defaults | {"drafter_forwards": int(drafted > 0)} | values))  # type: ignore[arg-type]


def run(clock: TickingClock, steps: list[tuple[int, Step]], pipe: SamplePipe, cache_bytes: Callable[[], int]):
    def work() -> Iterator[Step]:
        for milliseconds, made in steps:
            clock.work(milliseconds)
            yield made

    instruments = Instruments(clock, pipe, lambda: 999, lambda tokens: f"{len(tokens)} tokens")
    running = Running(work(), cache_bytes, lambda: 77)
    return measure_sample(lambda: running, PROMPT, SamplePlace(2, 5, "speculative", False), instruments)


STEPS = [
    (30, step((1,), prefill=True, target_forwards=4)),
    (10, step((2, 3, 4), drafted=3, accepted=2)),
    (5, step((5,), skipped="no match", shadowed=3, drafter_forwards=1, host_syncs=2)),
    (7, step((6,), drafted=3, accepted=0, guard="non-finite logits")),
    (11, step((9,), drafted=3, accepted=1, stop=StopReason.EOS)),
]


def test_stages_and_counters_are_what_happened() -> None:
    sizes = iter([500, 300])
    measured = run(TickingClock(), STEPS, SamplePipe(None), lambda: next(sizes))
    sample = measured.sample
    assert sample.id == "2/5/speculative/p1"
    assert (sample.stages.prefill_s, sample.stages.decode_s, sample.stages.total_s) == (0.030, 0.033, 0.063)
    assert sample.tokens == (1, 2, 3, 4, 5, 6, 9)
    assert sample.token_digest == token_digest(sample.tokens)
    assert sample.text == "7 tokens"
    assert sample.stop_reason == "eos"
    assert (sample.accepted_per_step, sample.drafted_per_step) == ((2, 0, 0, 1), (3, 0, 3, 3))
    counters = sample.counters
    assert (counters.steps, counters.target_forwards, counters.drafter_forwards) == (4, 4, 4)
    assert (counters.drafted_tokens, counters.accepted_tokens) == (9, 3)
    assert (counters.host_syncs, counters.guard_rejections, counters.shadow_drafts) == (6, 1, 1)
    assert (measured.skips, measured.guards) == ({"no match": 1}, {"non-finite logits": 1})


def test_the_peak_is_the_prefills_and_the_rest_is_read_after_decoding() -> None:
    sizes = iter([500, 300])
    memory = run(TickingClock(), STEPS, SamplePipe(None), lambda: next(sizes)).sample.memory
    assert (memory.kv_bytes, memory.kv_bytes_peak, memory.drafter_bytes, memory.allocator_active_bytes) == (
        300,
        500,
        77,
        999,
    )


def test_marks_are_written_as_things_happen() -> None:
    reading, writing = os.pipe()
    measured = run(TickingClock(), STEPS, SamplePipe(writing), lambda: 1)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        lines = [json.loads(line) for line in stream]
    assert [line["event"] for line in lines] == ["start", "first_token", "end"]
    assert {line["sample"] for line in lines} == {measured.sample.id}
    assert lines[-1]["token_digest"] == measured.sample.token_digest
