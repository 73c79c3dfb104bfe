"""What six sittings of the engine's own kind say together, and what takes the claim from them."""

from __future__ import annotations

import pytest

from bridge.gate.judging import judge
from bridge.gate.standing import JudgedSitting, standing_claims
from tests.corpus.gate.turned import as_sitting, sitting
from tests.corpus.gate.workloads import taking_turns, trained

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def cases():
    return [sitting(number) for number in range(6)]


def judged(case) -> JudgedSitting:
    record, spec = case.record_value(), case.spec_value()
    return JudgedSitting(judge(case.run_id, case.files(), record, spec), record, spec, case.files())


def decode(cases):
    claims = {claim.id: claim for claim in standing_claims([judged(case) for case in cases])}
    return claims["decode_speedup"]


def test_a_sitting_lacks_nothing_but_the_others(cases):
    verdict = judged(cases[2]).verdict
    claim = next(claim for claim in verdict.claims if claim.id == "decode_speedup")
    assert claim.missing == ("ratio",), claim.why
    assert claim.why[0].startswith("ratio: G5-LAUNCHES: sitting 3 of 6")


def test_what_a_program_reports_beside_its_ratio_is_no_claim_of_one_sitting_of_several():
    """No set says it, and each of its sittings has other seeds: the best of them would be one of six."""
    case = as_sitting(trained(again=False), 2)
    (claim,) = judged(case).verdict.claims
    assert (claim.missing, claim.decision) == (("attempts",), "nothing")
    reason = "sitting 3 of 6, of which any could be shown: a set says ratios alone; run it with --profile claim"
    assert claim.why == (f"attempts: G5-ATTEMPTS: {reason}",)


def test_six_of_them_are_a_claim_with_how_many_over_how_long_and_where_the_next_one_lies(cases):
    claim = decode(cases)
    assert claim.why == ()
    assert [each.number for each in claim.sittings] == [1, 2, 3, 4, 5, 6]
    assert claim.wording.startswith("over 6 sittings in 1h")
    assert "decode faster: " in claim.wording
    assert "; the next sitting [" in claim.wording
    assert claim.wording.endswith("vs mlx_lm generate_step")


def without_the_third(cases):
    del cases[2]


def too_soon(cases):
    cases[3].record["started"] = cases[2].record["started"]


def of_another_question(cases):
    cases[1].record["attempt"]["key"] = "9" * 64


def one_more_between(cases):
    for case in cases[3:]:
        case.record["attempt"]["number"] += 1


def dirty_code(cases):
    cases[4].record["code"]["dirty"] = True


def a_slow_baseline(cases):
    """Four percent: no sitting is long enough to see it by itself."""
    for case in cases:
        for launch in case.record["launches"]:
            if launch["reference"] is not None:
                reference = launch["reference"]
                reference["done_s"] = reference["go_s"] + (reference["done_s"] - reference["go_s"]) / 1.08


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (without_the_third, "sitting 3 of 6 is missing"),
        (too_soon, "attempt 4 began 0.0 minutes after attempt 3, expected at least 10"),
        (of_another_question, "they are not of one question on one host"),
        (one_more_between, "attempt 4 is missing between them"),
        (dirty_code, "sitting 5: "),
        (a_slow_baseline, "over all sittings: the baseline takes at least"),
    ],
)
def test_what_takes_the_claim_is_named(cases, spoil, reason):
    spoilt = [case.copy() for case in cases]
    spoil(spoilt)
    assert any(why.startswith(reason) for why in decode([case.seal() for case in spoilt]).why)


def of_both_sides(number, alone):
    """Return a sitting of a program that takes turns itself; the baseline alone takes so many times as long."""
    case = taking_turns(logs=(0.1,) * 5, seed=100 + number, alone=alone)
    case.spec["commands"][0]["launches"]["rule"] |= {"least": 5, "most": 5}
    return as_sitting(case, number)


@pytest.mark.parametrize(("alone", "agrees"), [((1.0,), True), ((0.2, 2.0), False)])
def test_stretches_alone_that_scatter_say_nothing_of_turns_over_all_sittings(alone, agrees):
    """Five launches are too few to see it, so that turns could hide anything in each sitting."""
    sittings = [judged(of_both_sides(number, alone)) for number in range(6)]
    assert all("times" not in claim.missing for each in sittings for claim in each.verdict.claims)
    (claim,) = standing_claims(sittings)
    reason = "over all sittings: what each side takes alone scatters too much to agree (G3-WAIT4)"
    assert claim.why == (() if agrees else (reason,))
    assert claim.wording.startswith("over 6 sittings in 1h")


def test_another_set_of_the_same_question_is_one_more_look(cases):
    later = [case.copy() for case in cases]
    for case in later:
        case.record["attempt"]["number"] += 6
        case.record["attempt"]["looks"] = 2
    first, second = decode(cases), decode(later)
    assert second.why == ()
    assert second.bounds.half_width > first.bounds.half_width
    assert ", best of 2" in second.wording
