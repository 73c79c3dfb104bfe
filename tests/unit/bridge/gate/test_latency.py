"""Percentiles of the first token and of each later one are of the supervisor's stamps, with launches as clusters."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest

from bridge.gate.claims.latency import LATENCIES
from bridge.gate.claims.percentiles import Bounded, Percentiles, samples_least
from bridge.gate.judging import RECORD_NAME, VERDICT_NAME
from bridge.gate.render import rows
from tests.corpus.gate.builders import judged
from tests.corpus.gate.launches import in_order
from tests.corpus.gate.studies import BUILDERS
from tests.corpus.gate.turned import in_turns
from tests.corpus.gate.twins import busy

BASELINE, EARLIER = "autoregressive", "01jd7zk3v8q4w2m6x9c5b7n1t0"


def latencies(case, earlier=None):
    return {claim.id: claim for claim in judged(case, earlier).claims if claim.id in LATENCIES}


def lasts(case, first_s, token_s, arm=BASELINE):
    """Let each sample's first turn, and each token of its others, last as long as launch and sample say."""
    for launch in case.record["launches"]:
        begun = set()
        for turn in launch["turns"]:
            if turn["arm"] == arm:
                place = (launch["number"], turn["sample"])
                spent = turn["tokens"] * token_s(*place) if turn["sample"] in begun else first_s(*place)
                turn["done_s"] = turn["go_s"] + spent
                begun.add(turn["sample"])
    in_order(case.record["launches"])
    return case


def test_percentiles_by_hand():
    """Of 12 samples the 6th is the p50, and of 10 launches the 2nd and the 9th enclose the median.

    Of all 120 the 108th is the p90. Launches differ less than independent samples would, so its share errs by
    t(.975, 9) * sqrt(.09 / 120) = .062, and the 101st and the 116th enclose it.
    """
    case = lasts(
        in_turns().copy(), lambda number, sample: 0.01 * (sample + 1) + 0.001 * number, lambda _, sample: 0.001 * sample
    )
    claims = latencies(case)
    first, later = claims["baseline_first_token"], claims["baseline_token"]
    assert first.value == pytest.approx(0.0655)
    assert first.interval == pytest.approx((0.062, 0.069))
    assert first.confidence == pytest.approx(1.0 - 22 / 1024)
    assert (first.n, first.unit) == (10, "s")
    assert "autoregressive in turns with speculative, first token p50 0.0655 s [0.0620, 0.0690]" in first.wording
    assert "p90 0.1180 s [0.1110, 0.1260] over 120 samples of 10 launches, lower is better" in first.wording
    assert later.value == pytest.approx(0.005)
    assert "p90 0.01" in later.wording
    assert "p99" not in first.wording + later.wording
    assert claims["candidate_first_token"].wording == latencies(in_turns())["candidate_first_token"].wording


@pytest.mark.parametrize(("left_out", "names"), [(0, "p50 p90"), (1, "p50")])
def test_thirty_six_samples_have_a_p90_and_thirty_five_have_none(left_out, names):
    case = in_turns().copy()
    case.record["launches"] = case.record["launches"][:7]
    for launch in case.record["launches"][1:]:
        count = 6 - left_out * (launch["number"] == 3)
        launch["turns"] = [turn for turn in launch["turns"] if turn["sample"] < count]
    wording = latencies(case)["candidate_token"].wording
    assert f"over {36 - left_out} samples of 6 launches" in wording
    assert " ".join(name for name in ("p50", "p90", "p99") if name in wording) == names


@pytest.mark.parametrize(("count", "names"), [(367, ["p50", "p90"]), (368, ["p50", "p90", "p99"])])
def test_a_p99_takes_three_hundred_and_sixty_eight_samples(count, names):
    launches = [[float(value) for value in range(46)]] * 7 + [[float(value) for value in range(count - 7 * 46)]]
    assert ["p50", *Percentiles.of(launches).high] == names


def test_one_of_several_takes_more_samples_for_a_high_percentile():
    """One of four is to cover in 98.75 %: the largest of 48 lies below the p90 in .0064 of runs, of 49 in .0057."""
    confidence = 1.0 - 0.05 / 4
    few, enough = [[float(value) for value in range(8)]] * 6, [[float(value) for value in range(7)]] * 7
    assert (sum(map(len, few)), sum(map(len, enough))) == (48, 49)
    assert ("p90" in Percentiles.of(few).high, "p90" in Percentiles.of(few, confidence).high) == (True, False)
    assert "p90" in Percentiles.of(enough, confidence).high
    assert [samples_least(share) for share in (0.9, 0.99)] == [36, 368]


def test_samples_that_are_slow_in_one_launch_widen_the_interval_and_the_same_ones_spread_out_do_not():
    def slow(where):
        case = in_turns(launches=8).copy()
        return latencies(lasts(case, lambda *place: 0.5 if where(*place) else 0.012, lambda *_: 0.025))

    together, apart = (slow(where) for where in (lambda number, _: number == 4, lambda _, sample: sample == 4))
    assert together["baseline_first_token"].interval == pytest.approx((0.012, 0.5))
    assert apart["baseline_first_token"].interval == pytest.approx((0.012, 0.012))
    assert together["baseline_first_token"].value == pytest.approx(0.012)


def test_what_a_program_says_of_its_times_is_in_none_of_them():
    case = in_turns().copy()
    for arm in case.report["arms"]:
        for sample in arm["samples"]:
            sample["stages"] = {stage: seconds and 0.5 * seconds for stage, seconds in sample["stages"].items()}
    claims, stamped = latencies(case), latencies(in_turns())
    assert set(claims) == set(LATENCIES)
    assert [(claim.value, claim.interval, claim.wording) for claim in claims.values()] == [
        (claim.value, claim.interval, claim.wording) for claim in stamped.values()
    ]


def without_turns():
    case = in_turns().copy()
    case.record["launches"] = []
    case.spec["commands"][0] |= {"launches": None, "reference": None}
    return case


def without_first_turns():
    case = in_turns().copy()
    case.spec["commands"][0]["launches"]["prefill"] = False
    return case


def beside_a_load_of_the_runners():
    case = in_turns().copy()
    case.spec["commands"][0]["launches"]["load"] = "drawn"
    for launch in case.record["launches"]:
        launch["loaded"] = launch["number"] % 2
    return case


@pytest.mark.parametrize(
    "case",
    [without_turns, without_first_turns, beside_a_load_of_the_runners, lambda: in_turns(launches=5).copy()],
    ids=["no turns", "no first turns", "a drawn load", "too few launches for an interval"],
)
def test_a_run_whose_stamps_say_nothing_of_it_has_none(case):
    assert latencies(case()) == {}


def test_of_samples_of_several_prompts_the_mean_a_prompt_is_said_and_no_high_percentile():
    claims = latencies(lasts(in_turns(faster=2.0).copy(), lambda *_: 0.03, lambda *_: 0.025))
    first = claims["baseline_first_token"]
    assert first.value == pytest.approx(0.015)
    assert "over 60 samples of 10 launches, each the mean of up to 2 prompts" in first.wording
    assert all("p90" not in claim.wording for claim in claims.values())


def test_a_baseline_beside_itself_has_no_candidate():
    assert set(latencies(in_turns(names=(BASELINE, "autoregressive_again")))) == set(LATENCIES[:2])


def test_they_may_be_quoted_over_enough_launches_of_a_machine_that_others_leave_alone():
    assert {claim.decision for claim in latencies(in_turns()).values()} == {"evidence"}
    assert {claim.missing for claim in latencies(busy(0.75)).values()} == {("machine",)}
    assert all("ratio" in claim.missing for claim in latencies(in_turns(launches=8)).values())


@pytest.fixture
def earlier():
    case = in_turns(seed=5)
    case.report["run"]["id"] = case.record["id"] = case.run_id = case.spec["id"] = EARLIER
    return case


def again(earlier):
    """Return a second attempt's percentiles, the first one beside it with what its own gate said."""
    case = in_turns().copy()
    case.record["attempt"].update(number=2, earlier=[EARLIER])
    verdict = judged(earlier).canonical()
    files = {**earlier.files(), RECORD_NAME: earlier.record_value().canonical(), VERDICT_NAME: verdict}
    return latencies(case, {EARLIER: files})


def test_an_earlier_attempt_is_pooled(earlier):
    first = again(earlier)["baseline_first_token"]
    assert (first.n, first.decision) == (20, "evidence"), first.why
    assert "over 240 samples of 20 launches" in first.wording
    assert first.wording.startswith("in 2 sittings")


def test_one_of_several_cells_has_the_interval_of_one_that_could_be_chosen():
    case = in_turns().copy()
    case.record["attempt"]["looks"] = 4
    alone, chosen = latencies(in_turns())["candidate_token"], latencies(case)["candidate_token"]
    assert (alone.confidence, chosen.confidence) == pytest.approx((1.0 - 22 / 1024, 1.0 - 2 / 1024))
    assert "lower is better, best of 4" in chosen.wording


def test_one_that_its_own_program_may_have_spoilt_is_in_and_out(earlier):
    lasts(earlier, lambda *_: 0.001, lambda *_: 0.025)
    first, alone = again(earlier)["baseline_first_token"], latencies(in_turns())["baseline_first_token"]
    assert "1 earlier attempt in and out (lost times)" in first.wording
    assert first.interval == pytest.approx((0.001, max(first.value, alone.interval[1])))


def test_bounds_that_cover_two_have_the_lesser_confidence():
    wide, narrow = Bounded(2.0, (1.0, 3.0, 0.99)), Bounded(5.0, (2.0, 4.0, 0.96))
    assert wide.covering(narrow) == Bounded(2.0, (1.0, 4.0, 0.96))
    assert wide.covering(Bounded(1.0, None)).bounds is None


def slow_in(*counts):
    """Return launches of 12 samples, of which so many are slow."""
    return [[0.012] * (12 - count) + [0.5] * count for count in counts]


def test_a_high_percentile_is_of_all_samples_and_not_of_the_median_launch():
    """In five launches the 11th of 12 is quick, and yet 14 of 96 samples are slow."""
    numbers = Percentiles.of(slow_in(1, 1, 1, 1, 1, 3, 3, 3))
    assert numbers.high["p90"] == Bounded(0.5, (0.012, 0.5, 0.95))
    assert numbers.p50.value == pytest.approx(0.012)


@pytest.mark.parametrize("counts", [(4, 4, 4, 0, 0, 0, 0, 0), (12, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0, 11)])
def test_launches_that_differ_more_than_by_chance_have_no_high_percentile_of_so_few_samples(counts):
    numbers = Percentiles.of(slow_in(*counts))
    assert numbers.high == {"p90": None}
    assert numbers.words("s").endswith(", p90 not known, launches differ")
    many = Percentiles.of([values * 8 for values in slow_in(2, 0, 4, 1, 3, 0, 2, 4)])
    assert many.high["p90"].value == pytest.approx(0.5), "enough of them tell"
    assert numbers.covering(many).high == many.covering(numbers).high == {"p90": None}


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.1])
def test_a_p90_covers_in_95_of_100_runs_whether_or_not_launches_differ(spread):
    """Launches lie apart by none, a quarter and half of what a launch's own samples do."""
    draw, covered, bounded = random.Random(f"p90 {spread}"), 0, 0
    truth = NormalDist(0.0, math.hypot(0.2, spread)).inv_cdf(0.9)
    for _ in range(600):
        places = [draw.gauss(0.0, spread) for _ in range(8)]
        number = Bounded.over_all([[draw.gauss(place, 0.2) for _ in range(20)] for place in places], 0.9)
        if number is not None and number.interval is not None:
            bounded += 1
            covered += number.interval[0] <= truth <= number.interval[1]
    assert covered >= 0.93 * bounded, (covered, bounded)
    assert bounded >= 540


def test_the_table_has_a_row_an_arm_and_two_where_they_may_not_be_quoted_alike():
    verdict = judged(in_turns().copy())

    def labels(shown):
        return [name for name, _ in rows(shown, None) if name.endswith("token")]

    first = dict(rows(verdict, None))["baseline first token"]
    assert labels(verdict) == ["baseline first token", "candidate first token"]
    assert first.startswith("p50 0.01")
    assert ", each later token p50 0.02" in first
    unlike = [claim.evolve(decision="valid") if claim.id == "candidate_token" else claim for claim in verdict.claims]
    assert labels(verdict.evolve(claims=tuple(unlike))) == [*labels(verdict), "candidate token"]


def test_a_sample_that_an_arm_did_not_finish_is_in_none_of_its_percentiles():
    case = in_turns().copy()
    for turn in case.record["launches"][3]["turns"]:
        turn["over"] &= (turn["arm"], turn["sample"]) != (BASELINE, 11)
    claims = latencies(case)
    assert all("over 119 samples of 10" in claims[name].wording for name in LATENCIES[:2])
    assert all("over 120 samples of 10" in claims[name].wording for name in LATENCIES[2:])


def test_a_sample_that_ends_with_its_first_token_says_nothing_of_later_ones():
    case = in_turns().copy()
    for launch in case.record["launches"]:
        launch["turns"] = [turn for turn in launch["turns"] if turn["sample"]]
        ended = {"number": 0, "arm": BASELINE, "sample": 0, "tokens": 1, "over": True}
        launch["turns"].insert(0, ended | {"go_s": launch["ready_s"], "done_s": launch["ready_s"] + 1e-4})
    claims = latencies(case)
    assert "over 120 samples" in claims["baseline_first_token"].wording
    assert "over 110 samples" in claims["baseline_token"].wording


def test_of_another_kind_in_turns_they_are_said_too():
    assert set(LATENCIES) <= {claim.id for claim in judged(in_turns(report=BUILDERS["needle_recall"]().report)).claims}
