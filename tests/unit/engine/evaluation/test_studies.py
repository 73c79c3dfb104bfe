"""The arithmetic of the studies: what counts as reached, agreed, or an impossible plan."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from engine.drafters.draft_model import DraftModel
from engine.errors import ModelMismatchError, PromptError, UsageError
from engine.reports import Counters, Memory, Sample, Stages
from engine.studies.acceptance import acceptance_length, by_position
from engine.studies.drafter_parity import DraftedBlock, Generation, Parity, check_same
from engine.studies.verify_cost import CostPlan, MeasuredCosts, VerifyCost

SAMPLE = Sample(
    id="0/0/speculative/a",
    prompt_id="a",
    prompt_digest="0" * 64,
    kind="raw",
    launch=0,
    order_index=0,
    is_warmup=False,
    prompt_tokens=3,
    output_tokens=9,
    tokens=tuple(range(9)),
    token_digest="0" * 64,
    text="",
    stop_reason="budget",
    stages=Stages(0.1, 0.2, 0.3),
    counters=Counters(4, 4, 10, 5, 4, 5, 0),
    memory=Memory(1),
    accepted_per_step=(3, 0, 2, 0),
    drafted_per_step=(3, 3, 3, 1),
)


def test_a_position_is_reached_when_all_before_it_were_accepted() -> None:
    assert by_position([SAMPLE], 3) == [
        {"position": 1, "reached": 4, "accepted": 2},
        {"position": 2, "reached": 2, "accepted": 2},
        {"position": 3, "reached": 2, "accepted": 1},
    ]


def test_acceptance_length_counts_the_bonus_and_not_a_refused_step() -> None:
    assert acceptance_length([SAMPLE]) == pytest.approx(9 / 4)
    steps = {"accepted_per_step": (3, 0, 0, 2, 0), "drafted_per_step": (3, 3, 0, 3, 1)}
    refused = replace(SAMPLE, output_tokens=10, counters=Counters(5, 5, 10, 5, 5, 6, 1), **steps)
    assert acceptance_length([refused]) == pytest.approx(9 / 5)
    # A refused later row costs its draft's tail; the step itself commits.
    later = replace(refused, output_tokens=11)
    assert acceptance_length([later]) == pytest.approx(10 / 5)
    assert acceptance_length([]) == 0.0


def test_agreement_is_counted_token_by_token_and_identity_needs_the_same_steps() -> None:
    equal = Generation("a", "0" * 64, (1, 2, 3), (1, 2, 3), (1, 0), (1, 0))
    other_steps = replace(equal, torch_accepted_per_step=(0, 1))
    blocks = (DraftedBlock("a", 5, 1, (1, 2, 3), (1, 9, 3), 0.01), DraftedBlock("a", 6, 2, (4,), (4,), None))
    parity = Parity(blocks, (equal, other_steps))
    assert (parity.agreed_tokens, parity.drafted_tokens, parity.identical_generations) == (3, 4, 1)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"contexts": ()}, UsageError, "expected all >= 1"),
        ({"contexts": (0,)}, UsageError, "expected all >= 1"),
        ({"rows": (2, 4)}, UsageError, "rows .* hold no 1"),
        ({"repeats": 0}, UsageError, "expected all >= 1"),
        ({"contexts": (90,)}, PromptError, "the target holds 100 positions"),
    ],
)
def test_a_plan_that_cannot_be_measured_is_refused(changes: dict, error: type[Exception], message: str) -> None:
    plan = CostPlan(contexts=(8,), rows=(1, 4, 16), repeats=2, seed="x")
    plan.check(100)
    with pytest.raises(error, match=message):
        replace(plan, **changes).check(100)


def test_a_cost_is_the_ratio_of_medians_at_the_same_context() -> None:
    rows = [(8, 1, (1.0, 9.0, 2.0)), (8, 4, (3.0, 3.0, 50.0)), (64, 1, (4.0,)), (64, 4, (4.0,))]
    costs = MeasuredCosts(tuple(VerifyCost(*row, token_digest="") for row in rows), ())
    assert costs.ratio(8, 4) == pytest.approx(1.5)
    assert costs.ratio(64, 4) == pytest.approx(1.0)


@pytest.mark.parametrize("digest", [None, "0" * 64])
def test_a_drafter_of_another_kind_has_no_rows_to_compare(digest: str | None) -> None:
    info = SimpleNamespace(name="small", digest=digest, parameters=1, dtype="float32")
    target: Any = SimpleNamespace(info=info)
    engine: Any = SimpleNamespace(target=target, drafter=DraftModel(target))
    with pytest.raises(ModelMismatchError, match="drafter 'small' is no DFlash drafter"):
        check_same(engine, engine)
