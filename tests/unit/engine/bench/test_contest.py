from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from engine.bench.contest import Contest, standings, table
from engine.bench.overhead import Spent
from engine.bench.turns import Pulled
from engine.measurement.selection import Prompt

PROMPTS = [Prompt(f"p{index}", "raw", (index, index + 1), "0" * 64) for index in range(4)]


class FakeClock:
    """Moves by what the work says it takes."""

    def __init__(self) -> None:
        self.now = 0

    eager = False

    def now_ns(self) -> int:
        return self.now

    def host_ns(self) -> int:
        return self.now


@dataclass
class FakePeer:
    """Answers with the prompt reversed, or wrongly on some prompts, at a constant pace."""

    name: str
    pace_ns: int
    clock: FakeClock
    wrong: tuple[int, ...] = ()
    code_path: str = "tests:fake"
    decoded: list[tuple[int, ...]] = field(default_factory=list)

    def start(self, prompt: tuple[int, ...], budget_tokens: int) -> Pulled:
        return Pulled(self._tokens(prompt), self.clock)

    def _tokens(self, prompt: tuple[int, ...]) -> Generator[tuple[int, ...]]:
        self.decoded.append(prompt)
        for token in prompt[:1] if prompt[0] in self.wrong else (*reversed(prompt), 7):
            self.clock.now += self.pace_ns * (1 + prompt[0])
            yield (token,)


def answer(prompt: Prompt) -> tuple[int, ...]:
    return (*reversed(prompt.ids), 7)


@pytest.mark.parametrize("slice_tokens", [None, 1, 16])
def test_every_contestant_meets_every_prompt_in_a_drawn_order(slice_tokens: int | None) -> None:
    clock = FakeClock()
    peers = [FakePeer(name, 1, clock) for name in "abc"]
    contest = Contest(peers, PROMPTS[:3], PROMPTS[3:], 8, 5, "seed", clock, slice_tokens)
    entries = contest.run(answer)
    assert Counter((entry.peer, entry.prompt_id) for entry in entries) == {
        (name, f"p{index}"): 5 for name in "abc" for index in range(3)
    }
    assert all(peer.decoded[0] == PROMPTS[3].ids for peer in peers)
    firsts = [entry.peer for entry in entries[::3]]
    assert set(firsts) == set("abc")
    assert contest.run(answer) == entries
    assert Contest(peers, PROMPTS[:3], [], 8, 5, "other", clock, slice_tokens).run(answer) != entries
    assert {entry.tokens for entry in entries} == {3}


def test_a_contestant_with_other_tokens_gets_no_ratio() -> None:
    clock = FakeClock()
    peers = [FakePeer("plain", 10, clock), FakePeer("twice", 5, clock), FakePeer("false", 1, clock, wrong=(2,))]
    entries = Contest(peers, PROMPTS, [], 8, 3, "seed", clock).run(answer)
    placings = {row.peer: row for row in standings(entries, "plain")}
    assert placings["plain"].speed.value == 1.0
    assert round(placings["twice"].speed.value, 9) == 2.0
    assert placings["false"].speed is None
    assert placings["false"].different_prompts == 1
    text = "\n".join(table(list(placings.values()), "plain"))
    assert "other tokens than plain decoding on 1 of 4 prompts" in text


def test_nobody_gets_a_ratio_beside_a_reference_with_other_tokens() -> None:
    clock = FakeClock()
    peers = [FakePeer("plain", 10, clock), FakePeer("false", 1, clock, wrong=(2,))]
    placings = standings(Contest(peers, PROMPTS, [], 8, 3, "seed", clock).run(answer), "false")
    assert [(row.peer, row.speed, row.reference_different_prompts) for row in placings] == [
        ("false", None, 1), ("plain", None, 1)
    ]  # fmt: skip
    assert "no ratio: 'false' gave other tokens on 1 prompts" in table(placings, "false")[-1]


def test_a_meter_sums_the_chosen_calls_and_the_items_of_generators_only_while_it_runs() -> None:
    clock = FakeClock()

    class Work:
        length = 3

        def call(self, spent: int) -> int:
            clock.now += spent
            return spent

        def items(self) -> object:
            for spent in (10, 20):
                clock.now += spent
                yield spent

        def free(self) -> None:
            clock.now += 1000

    spent = Spent(clock.host_ns, clock.host_ns)
    work = spent.around(Work(), "call", iterators=("items",))
    assert work.call(5) == 5
    assert spent.read_s() == 5e-9
    assert (work.call(7), work.length) == (7, 3)
    work.free()
    for _ in work.items():
        clock.now += 500
    assert spent.read_s() == 37e-9
    assert spent.read_s() == 0


def test_a_meter_that_waits_charges_a_call_for_what_it_queued() -> None:
    class Device(FakeClock):
        queued = 0

        def now_ns(self) -> int:
            self.now, self.queued = self.now + self.queued, 0
            return self.now

    clock = Device()

    class Work:
        def draft(self) -> None:
            clock.queued += 40

        def verify(self) -> None:
            clock.queued += 100

    for ended_ns, expected in ((clock.now_ns, (40e-9, 100e-9)), (clock.host_ns, (0, 0))):
        readings = []
        for name in ("draft", "verify"):
            spent = Spent(clock.host_ns, ended_ns)
            getattr(spent.around(Work(), name), name)()
            readings.append(spent.read_s())
        assert tuple(readings) == expected
