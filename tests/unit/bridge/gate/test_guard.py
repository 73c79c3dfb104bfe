"""What the loop does with refused rows and shadow drafts is what the gate counts: the loop makes the samples here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.gate.facts.samples import idle_refusals
from bridge.gate.interface import Evidence, Report
from bridge.gate.profiles import named
from bridge.gate.registry import rules
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.speculative import Parts, speculative
from engine.drafters.local import LocalDrafter
from engine.protocols import Depth
from engine.reports.sample import Counters, Memory, Sample, Stages
from engine.stopping import Stopping
from engine.types import Decision, Draft, Forward, Step
from engine.verification.greedy import decide
from tests.corpus.gate.breaks import honest

BUDGET, DEPTH = 24, 3
ANSWER = tuple(range(100, 100 + BUDGET))
PROMPT = (1, 2, 3)


@dataclass
class Target:
    """A sequence whose next token is known; one row of every n-th drafted block cannot be used."""

    row: int
    every: int
    length: int = 0
    max_positions: int = 1 << 20
    blocks: int = 0

    def expect(self, new_tokens: int) -> None:
        del new_tokens

    def prefill(self, ids: tuple[int, ...], chunk: int) -> Iterator[Forward]:
        self.length = len(ids)
        yield Forward(([ANSWER[0]], [True]), None, 0, len(ids))

    def forward_block(self, bonus: int, draft: Draft) -> Forward:
        start = self.length
        self.length += 1 + draft.count
        self.blocks += 1
        tokens = [_answer(start + offset) for offset in range(draft.count + 1)]
        bad = self.row if self.blocks % self.every == 0 else -1
        return Forward((tokens, [offset != bad for offset in range(draft.count + 1)]), None, start, draft.count + 1)

    def decode_ahead(
        self, bonus: int, limit: int, goes_on: Callable[[], bool] = lambda: True
    ) -> Iterator[tuple[Decision, Forward]]:
        for _ in range(limit):
            if not goes_on():
                return
            forward = Forward(None, None, self.length, 1)
            self.length += 1
            yield Decision((_answer(forward.start),), 0), forward

    def committed(self, forward: Forward, rows: int) -> None:
        return None

    def crop(self, length: int) -> None:
        self.length = length


@dataclass
class Oracle(LocalDrafter):
    """A drafter that is right until a place, and wrong from there on."""

    right: int
    forwards: int = 0

    def ask(self, bonus: int, position: int, count: int, wait_s: float | None = 0.0) -> Draft:
        self.forwards += 1
        tokens = [_answer(position + offset) + (offset >= self.right) for offset in range(count)]
        return Draft(tokens=tuple(tokens), count=count)

    def observe(self, start: int, tokens: tuple[int, ...], features: object) -> None:
        return None


class Greedy:
    """The engine's own rule over plain lists."""

    greedy = True

    def first(self, forward: Any) -> Decision:
        return decide((), *forward.logits, vocab_size=2048)

    def decide(self, draft: Draft, forward: Any) -> Decision:
        return decide(draft.tokens, *forward.logits, vocab_size=2048)


@dataclass
class Ticks:
    """A clock that only moves on."""

    now: int = field(default=0)
    eager: bool = False

    def host_ns(self) -> int:
        self.now += 1_000_000
        return self.now


def _answer(position: int) -> int:
    """Return the token after a position."""
    return ANSWER[min(position - len(PROMPT) + 1, BUDGET - 1)]


def decoded(row: int, every: int, right: int, depth: Depth | None = None) -> list[Step]:
    chosen = depth or FixedDepth(DEPTH)
    parts = Parts(Target(row, every), Oracle(right), Greedy(), chosen, Ticks())  # type: ignore[arg-type]
    return list(speculative(parts, PROMPT, Stopping(BUDGET)))


def as_sample(steps: list[Step]) -> Sample:
    """Return the row that the engine's measurement makes of these steps."""
    tokens = tuple(token for step in steps for token in step.tokens)
    decode = [step for step in steps if not step.prefill]
    counters = Counters(
        target_forwards=sum(step.target_forwards for step in decode),
        drafter_forwards=sum(step.drafter_forwards for step in decode),
        drafted_tokens=sum(step.drafted for step in decode),
        accepted_tokens=sum(step.accepted for step in decode),
        steps=len(decode),
        host_syncs=len(steps),
        guard_rejections=sum(step.guard is not None for step in decode),
        shadow_drafts=sum(step.shadowed > 0 for step in decode),
    )
    return Sample(
        id="0/0/speculative/p", prompt_id="p", prompt_digest="a" * 64, kind="structured", launch=0, order_index=0,
        is_warmup=False, prompt_tokens=len(PROMPT), output_tokens=len(tokens), tokens=tokens, token_digest="b" * 64,
        text="", stop_reason="budget", stages=Stages(0.1, 0.2, 0.3), counters=counters, memory=Memory(1),
        accepted_per_step=tuple(step.accepted for step in decode),
        drafted_per_step=tuple(step.drafted for step in decode),
    )  # fmt: skip


def found(sample: Sample, policy: str = "fixed", refused: int | None = None) -> list[str]:
    """Return what G4-STEPS says of a report whose candidate has this one sample, so many rows of it refused."""
    value = honest("smoke").report
    arm = value["arms"][-1]
    row = dict(arm["samples"][-1])
    row.update(
        output_tokens=sample.output_tokens,
        tokens=list(sample.tokens),
        counters=dict(sample.counters.__dict__),
        accepted_per_step=list(sample.accepted_per_step or ()),
        drafted_per_step=list(sample.drafted_per_step or ()),
    )
    arm["samples"] = [row]
    value["arms"] = [arm]
    count = sample.counters.guard_rejections if refused is None else refused
    row_id = f"{row['launch']}/{row['order_index']}/{arm['name']}/{row['prompt_id']}"
    fallback = {"arm": arm["name"], "component": "target", "sample": row_id, "reason": "no finite logits"}
    value["fallbacks"] = [{**fallback, "count": count}] if count else []
    value["config"]["max_new_tokens"] = BUDGET
    if policy != "fixed":
        value["config"]["depth"] = {"policy": policy, "longest": DEPTH}
    report = Report("report.json", b"", value)
    return [v.message for v in rules()["G4-STEPS"](Evidence((report,), None, None, named("default", "smoke")))]


@pytest.mark.parametrize("right", [0, 1, 2, 3])
@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("row", [0, 1, 2, 3])
def test_the_steps_of_a_refused_row_add_up(row: int, every: int, right: int) -> None:
    steps = decoded(row, every, right)
    sample = as_sample(steps)
    assert sample.tokens == ANSWER
    assert found(sample) == []
    empty = sum(1 for step in steps if not step.prefill and step.committed == 0)
    row_values = {**sample.__dict__, "counters": sample.counters.__dict__}
    assert idle_refusals(row_values) == sample.idle_refusals == empty


def test_a_later_row_that_is_refused_still_commits_its_step() -> None:
    sample = as_sample(decoded(2, 1, DEPTH))
    assert sample.counters.guard_rejections > 0
    assert sample.idle_refusals == 0


@pytest.mark.parametrize("lie", ["none", "too many"])
def test_refusals_that_the_steps_do_not_show_are_noticed(lie: str) -> None:
    sample = as_sample(decoded(0, 1, DEPTH))
    cut = sum(a < d for a, d in zip(sample.accepted_per_step or (), sample.drafted_per_step or (), strict=True))
    assert sample.counters.guard_rejections == cut > DEPTH
    assert found(sample, refused=0 if lie == "none" else cut + 1)


@pytest.mark.parametrize("right", [0, DEPTH])
def test_shadow_drafts_are_no_drafts_of_a_step(right: int) -> None:
    sample = as_sample(decoded(-1, 1, right, ControlledDepth(DEPTH)))
    assert sample.tokens == ANSWER
    assert sample.counters.shadow_drafts > 0
    assert found(sample, "controller") == []
