"""One controller over plain decoding, prompt lookup and a drafter, on recorded answers and costs measured once.

The answers are the packaged target's to texts of four kinds; ``accepted`` says how many of the
packaged drafter's seven tokens were right behind each token.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from engine.decoding.arms import Arm
from engine.decoding.controller import ControlledDepth
from engine.decoding.depth import FixedDepth
from engine.decoding.lookups import LOOKED_UP, Lookups
from engine.protocols import Depth
from engine.types import Choice, Decision, Match, Pause
from tests.fakes.recorded import Recorded, Spent, run

FOLDER = Path(__file__).parents[3] / "fakes" / "recorded_answers"
TEXTS = ("structured", "code", "prose", "mixed")
TOKENS = 496
WRONG = -1


class FixedLookups(FixedDepth):
    """Verify a fixed number of looked-up tokens wherever there is a match."""

    def choose(self, position: int, limit: int, lookup: Callable[[], Match | None] | None = None) -> Choice:
        match = lookup() if lookup is not None else None
        return Choice(min(self.tokens, limit) if match else 0, LOOKED_UP)

    def park(self, position: int) -> Pause:
        return Pause(1)


class WithoutLookups(Recorded):
    def lookup(self, position: int) -> None:
        return None


@cache
def texts(name: str) -> tuple[dict, ...]:
    return tuple(json.loads((FOLDER / f"{name}.json").read_text()))


def recorded(text: dict, kind: type[Recorded] = Recorded, right: bool = True) -> Recorded:
    answer, proposed = text["answer"], []
    for position, accepted in enumerate(text["accepted"]):
        count = int(accepted) if right else 0
        proposed.append([*answer[position + 1 : position + 1 + count], *[WRONG] * (7 - count)])
    return kind(text["prompt"], answer, proposed)


def decoded(name: str, make: Callable[[], Depth], kind: type[Recorded] = Recorded, shared: bool = True) -> list[Spent]:
    """Decode every answer of a text, the policy kept from one to the next."""
    policy = make()
    return [run(policy if shared else make(), recorded(text, kind), TOKENS) for text in texts(name)]


def seconds(name: str, make: Callable[[], Depth], kind: type[Recorded] = Recorded) -> float:
    return sum(spent.time_s for spent in decoded(name, make, kind))


def singles(name: str) -> dict[str, float]:
    times = {"plain": float((TOKENS - 1) * len(texts(name))), "ngram": seconds(name, lambda: ControlledDepth(0))}
    times["drafter"] = seconds(name, lambda: ControlledDepth(7), WithoutLookups)
    for depth in (3, 7):
        times[f"drafter, depth {depth}"] = seconds(name, lambda depth=depth: FixedDepth(depth), WithoutLookups)
    for depth in (3, 7, 16):
        times[f"ngram, depth {depth}"] = seconds(name, lambda depth=depth: FixedLookups(depth))
    return times


def choice() -> ControlledDepth:
    return ControlledDepth({"dflash": 7})


@pytest.mark.parametrize("name", TEXTS)
def test_choosing_is_about_as_good_as_the_best_single_drafter_and_better_on_mixed_text(name: str) -> None:
    best = min(singles(name).values())
    share = best / seconds(name, choice)
    assert share >= (1.0 if name == "mixed" else 0.97)


@pytest.mark.parametrize("name", TEXTS)
def test_from_cold_finding_out_costs_a_tenth_of_an_answer_at_most(name: str) -> None:
    for chosen, alone in zip(
        decoded(name, choice, shared=False), decoded(name, lambda: ControlledDepth(0), shared=False), strict=True
    ):
        assert chosen.time_s <= alone.time_s / 0.9


@pytest.mark.parametrize("name", TEXTS)
def test_from_cold_no_answer_is_slower_than_plain_decoding(name: str) -> None:
    assert all(spent.time_s * 0.98 <= TOKENS - 1 for spent in decoded(name, choice, shared=False))


def shuffled(text: dict) -> dict:
    """Return an answer whose matches are nearly always wrong: runs of three tokens come again, what follows never."""
    answer = [token for block in range(len(text["answer"]) // 4 + 1) for token in (7, 8, 9, 100 + block)]
    return text | {"answer": answer[: len(text["answer"])], "accepted": "0" * len(text["accepted"])}


def alternating(text: dict) -> dict:
    """Return an answer whose matches are right for eighty tokens and wrong for eighty, in turns."""
    answer: list[int] = []
    while len(answer) < len(text["answer"]):
        answer += [5, 6, 7, 8] * 20
        answer += [token for block in range(20) for token in (5, 6, 7, 1000 + len(answer) + block)]
    return text | {"answer": answer[: len(text["answer"])], "accepted": "0" * len(text["accepted"])}


@pytest.mark.parametrize("make", [shuffled, alternating])
def test_matches_and_drafts_that_mislead_cost_two_percent_at_most(make: Callable[[dict], dict]) -> None:
    for text in texts("prose"):
        assert run(choice(), recorded(make(text)), TOKENS).time_s * 0.98 <= TOKENS - 1


def test_a_bad_moment_at_the_first_long_drafts_is_no_verdict() -> None:
    for text in texts("prose"):
        disturbed, met, lost = recorded(text), [], [0.0]

        def verify_s(rows: int, met: list[int] = met, lost: list[float] = lost) -> float:
            met.append(rows)
            seconds = 1.0 + 0.065 * rows
            lost[0] += 8 * seconds if rows > 3 and met.count(rows) <= 2 else 0.0
            return seconds * (9.0 if rows > 3 and met.count(rows) <= 2 else 1.0)

        calm = run(choice(), recorded(text), TOKENS).time_s
        disturbed.verify_s = verify_s
        assert run(choice(), disturbed, TOKENS).time_s <= calm * 1.25 + lost[0]


def test_a_dear_forward_of_many_rows_is_not_paid_for_matches() -> None:
    for text in texts("prose"):
        dear = recorded(text)
        dear.verify_s = lambda rows: 1.0 + 1.2 * rows
        # As much as the worst worlds of one drafter may cost over so few tokens (test_controller).
        assert run(choice(), dear, TOKENS).time_s * 0.97 <= TOKENS - 1


def test_every_drafter_is_used_where_it_is_best() -> None:
    for name, most in (("structured", "dflash"), ("prose", LOOKED_UP)):
        steps = [spent.steps for spent in decoded(name, choice)]
        drafted = {source: sum(step.get(source, 0) for step in steps) for source in ("dflash", LOOKED_UP)}
        assert max(drafted, key=drafted.__getitem__) == most
        assert min(drafted.values()) > 0


def test_a_match_follows_a_draft_that_it_agrees_with() -> None:
    extended = []

    class Watched(ControlledDepth):
        def choose(self, *args: object) -> Choice:
            chosen = super().choose(*args)  # type: ignore[arg-type]
            extended.append(chosen.extended)
            return chosen

    for text in texts("structured"):
        run(Watched({"dflash": 7}), recorded(text), TOKENS)
    assert max(extended) > 7


def test_a_match_is_worth_what_matches_of_its_length_were() -> None:
    lookups = Lookups()
    for _ in range(30):
        assert lookups.learn(Match((1, 2, 3), 8), (1, 2, 3)) == 3
        assert lookups.learn(Match((1, 2, 3), 2), (1, 9)) == 1
    long, short = lookups.committed(Match((1,) * 8, 8)), lookups.committed(Match((1,) * 8, 2))
    assert long[8] > 7
    assert short[8] == pytest.approx(short[1] + short[1] * lookups.rates[2], abs=0.05)
    assert lookups.committed(Match((1,) * 8, 2), begin=8) == [0.0]


def looping(start: int) -> dict:
    """Return an answer that says little before it repeats itself, which the drafter never foresees."""
    answer = [*range(start, start + 40), *([start + token for token in range(12)] * 40)][:TOKENS]
    return {"prompt": [1, 2, 3], "answer": answer, "accepted": "0" * len(answer)}


def test_learning_may_lose_a_share_of_the_time_that_decoding_took_not_of_what_plain_steps_would_have_taken() -> None:
    policy = choice()
    spent = [run(policy, recorded(looping(100 * number)), TOKENS) for number in range(1, 5)]
    assert all(cost.steps[LOOKED_UP] > 25 for cost in spent)
    assert sum(cost.time_s for cost in spent) * 0.8 <= policy.decoded_s <= sum(cost.time_s for cost in spent)


def test_a_longer_context_begins_with_what_is_known_of_shorter_ones() -> None:
    policy = choice()
    run(policy, recorded(texts("prose")[0]), TOKENS)
    match = Match(tuple(range(16)), 32)
    assert policy.choose(400, 100, lambda: match).count == 16
    assert policy.choose(5000, 100, lambda: match).count == 16


def test_the_last_tokens_of_an_answer_are_one_draft() -> None:
    policy = choice()
    run(policy, recorded(texts("prose")[0]), TOKENS)
    assert policy.choose(400, 10, lambda: Match(tuple(range(16)), 32)).count == 10


def test_another_text_is_reason_to_look_again_at_a_drafter_that_was_of_no_use() -> None:
    policy = choice()
    for number in range(1, 4):
        run(policy, recorded(looping(100 * number)), TOKENS)
    steps = run(policy, recorded(texts("structured")[1]), TOKENS).steps
    assert steps["dflash"] > 60


def test_a_match_follows_no_draft_from_elsewhere_before_a_step_with_one_was_timed() -> None:
    policy = ControlledDepth({"far": 7})
    policy.begin(lambda _: 0.001)
    for position in range(8):  # plain steps are known, and no drafted one is
        policy.choose(position, 100)
        policy.park(position)
        policy.record(position, 0, Decision((1,), 0), 0.01)
    for _ in range(20):
        policy.lookups.learn_agreement(True)
    costs, rates = policy.buckets[0], policy._rates
    match = Match(tuple(range(16)), 8)
    assert rates.extended(costs, Arm("far", 7), match, 100) == 0
    costs.learn(Arm("far", 7), 0.012)
    assert rates.extended(costs, Arm("far", 7), match, 100) > 0
