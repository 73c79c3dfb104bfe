"""A ratio of turns that the supervisor stamped: over launches, pooled with earlier attempts, in words it allows."""

from __future__ import annotations

import math
import re

import pytest
import scipy

from bridge import strictjson
from bridge.gate.comparability import MeasuredRun
from bridge.gate.comparison import compare
from bridge.gate.judging import RECORD_NAME, judge
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.launches import launched, scattered

EARLIER = "01jd7zk3v8q4w2m6x9c5b7n1t0"
CODES = {"G5-LAUNCHES", "G5-SOLO", "G5-CLOCK"}


def judged(case, earlier=None):
    case.report["claims"] = []
    case.seal()
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value(), earlier=earlier)


def speed(verdict):
    return next(claim for claim in verdict.claims if claim.id == "decode_speedup")


def said(verdict):
    return {finding.code: finding.message for finding in verdict.findings if finding.code in CODES}


def logs_of(case):
    logs = []
    for launch in case.record["launches"][1:]:
        spent = [
            math.fsum(turn["done_s"] - turn["go_s"] for turn in launch["turns"] if turn["arm"] == arm)
            for arm in ("autoregressive", "speculative")
        ]
        logs.append(math.log(spent[0] / spent[1]))
    return logs


def test_the_ratio_is_the_supervisors_over_launches_and_its_interval_is_students():
    case = launched(honest("claim"), scattered(8))
    verdict = judged(case)
    claim, logs = speed(verdict), logs_of(case)
    low, high = scipy.stats.t.interval(0.96, 7, loc=sum(logs) / 8, scale=scipy.stats.sem(logs))
    assert claim.interval == pytest.approx((math.exp(low), math.exp(high)))
    assert (claim.n, claim.detail["over"], claim.detail["looks"]) == (8, "launches", 1)
    assert claim.wording.startswith("in one sitting, 5 % of the machine used by others: decode faster: 1.3")
    assert re.search(r"8 launches \(1\.\d\dx to 1\.\d\dx, median 1\.\d\dx\), vs", claim.wording)
    wide = claim.detail["prompts_like_these"]
    assert wide[0] < claim.interval[0] < claim.interval[1] < wide[1]
    assert said(verdict) == {}


def test_fewer_launches_carry_no_claim_and_name_the_minutes_that_enough_need():
    messages = said(judged(launched(honest("claim"), scattered(5))))
    assert messages == {"G5-LAUNCHES": "5 launches, a claim needs 8: about 2 minutes on this machine"}


def test_a_wide_interval_stays_citable_and_says_its_width():
    verdict = judged(launched(honest("claim"), scattered(20, sd=0.12)))
    assert said(verdict) == {}
    assert "not 3 %" in speed(verdict).detail["width"]
    assert speed(verdict).detail["ended"] == "most launches"


def test_a_run_that_went_on_beyond_the_rule_is_refused():
    messages = said(judged(launched(honest("claim"), scattered(12, sd=0.001))))
    assert messages == {"G5-LAUNCHES": "12 launches finished a pair, the rule stops after 8"}


@pytest.mark.parametrize(("longer_s", "ended"), [(0.0, True), (600.0, False)])
def test_a_run_that_spent_its_time_in_one_launch_did_not_end_by_the_rule(longer_s, ended):
    """Whoever sees its own launches may let time run out as the number pleases."""
    case = launched(honest("claim"), scattered(12, sd=0.12), allowed_s=780.0)
    case.record["launches"][12]["ended_s"] += longer_s
    messages = said(judged(case))
    assert ("G5-LAUNCHES" not in messages) is ended
    if not ended:
        assert "it ended as its time was over, of which launch 12 alone took 6" in messages["G5-LAUNCHES"]


def test_a_rule_that_nobody_simulated_carries_no_claim():
    messages = said(judged(launched(honest("claim"), scattered(3, sd=0.001), least=3)))
    words = "3 to 20 launches, until the half-width is 3 %"
    assert messages["G5-LAUNCHES"] == f"the launches followed a rule whose error rates nobody simulated: {words}"


def test_with_blocks_their_means_are_removed_and_a_cut_rotation_stays_outside():
    steps = [0.0, 0.2, -0.2, 0.4, -0.4]
    logs = [value + steps[place % 5] for place, value in enumerate(scattered(12, sd=0.004))]
    claim = speed(judged(launched(honest("claim"), logs, blocks=5)))
    assert claim.n == 10
    assert claim.detail["half_width"] < 0.02


def test_other_looks_widen_the_interval_and_are_said():
    alone = speed(judged(launched(honest("claim"), scattered(8))))
    case = launched(honest("claim"), scattered(8))
    case.record["attempt"]["looks"] = 6
    best = speed(judged(case))
    assert best.interval[0] < alone.interval[0]
    assert "best of 6" in best.wording


def test_two_launches_far_apart_in_a_large_family_are_no_fault_of_the_report():
    case = launched(honest("claim"), [0.0, math.log(8.0)])
    case.record["attempt"]["looks"] = 64
    verdict = judged(case)
    assert not [finding for finding in verdict.findings if finding.code == "G4-CLAIM"]
    assert speed(verdict).detail["half_width"] == pytest.approx(700.0)
    assert speed(verdict).detail["effect"] == "too few launches for a word"


def earlier_run(logs, *, cut=False):
    case = launched(honest("claim"), logs)
    case.record["id"] = case.spec["id"] = EARLIER
    if cut:
        case.record["launches"][-1]["cut"] = "the run was cancelled"
    return {EARLIER: {RECORD_NAME: strictjson.encode(case.record)}}


def again(logs):
    case = launched(honest("claim"), logs)
    case.record["attempt"].update(number=2, earlier=[EARLIER])
    return case


def test_a_second_attempt_is_pooled_launch_by_launch():
    verdict = judged(again(scattered(8, seed=2)), earlier_run(scattered(8)))
    claim = speed(verdict)
    assert (claim.n, claim.detail["attempts"]) == (16, 2)
    assert "16 launches" in claim.wording
    assert claim.wording.startswith("in 2 sittings, ")
    assert not [finding for finding in verdict.findings if finding.code == "G5-ATTEMPTS"]


def test_a_cancelled_run_enters_and_the_claim_is_the_weaker_of_with_and_without():
    bad = scattered(3, middle=-0.2)
    with_cut = speed(judged(again(scattered(8, middle=0.06)), earlier_run(bad, cut=True)))
    without = speed(judged(launched(honest("claim"), scattered(8, middle=0.06))))
    assert without.detail["effect"] == "faster"
    assert with_cut.n == 11
    assert with_cut.interval[0] < without.interval[0]
    assert with_cut.detail["effect"] == "no difference shown"


def test_three_sittings_that_differ_are_the_units():
    earlier = earlier_run(scattered(8, middle=0.1, sd=0.004))
    other = "01jd7zk3v8q4w2m6x9c5b7n2t0"
    earlier[other] = earlier_run(scattered(8, middle=0.5, sd=0.004))[EARLIER]
    case = again(scattered(8, middle=0.3, sd=0.004))
    case.record["attempt"].update(number=3, earlier=[EARLIER, other])
    claim = speed(judged(case, earlier))
    assert claim.detail["unit"] == "sitting"
    assert "sittings as units" in claim.wording
    assert claim.interval[1] / claim.interval[0] > 2


def test_an_arm_that_is_slower_in_turns_than_alone_is_found():
    case = launched(honest("claim"), scattered(8))
    for launch in case.record["launches"]:
        launch["solos"][0]["done_s"] += 0.25 * (launch["solos"][0]["done_s"] - launch["solos"][0]["go_s"])
        launch["solos"][0]["cpu_s"] *= 1.25
    assert said(judged(case))["G5-SOLO"].startswith("alone the arms' log ratio differs from that of the turns by +0.2")


def test_an_arm_that_says_it_put_out_nothing_alone_cannot_be_compared():
    case = launched(honest("claim"), scattered(8))
    for launch in case.record["launches"][3:]:
        launch["solos"][1]["tokens"] = 0
    verdict = judged(case)
    assert said(verdict)["G5-SOLO"] == "in 6 of 8 launches an arm put out nothing alone"
    assert "times" in speed(verdict).missing


def test_an_arm_that_mostly_sleeps_is_found_and_a_missing_source_is_not_held_against_it():
    case = launched(honest("claim"), scattered(8))
    for launch in case.record["launches"]:
        launch["solos"][1].update(cpu_s=0.01, waited_s=0.0)
    assert "arm 'speculative' alone kept the processor busy 0.00" in said(judged(case))["G5-SOLO"]
    for launch in case.record["launches"]:
        launch["solos"][1].update(cpu_s=None, waited_s=None)
    verdict = judged(case)
    assert said(verdict) == {}
    assert "who worked on the processor unseen" in speed(verdict).wording


@pytest.mark.parametrize("stretches", [slice(0, 1), slice(None)])
def test_where_the_wait_is_not_told_the_time_on_a_processor_has_to_suffice(stretches):
    case = launched(honest("claim"), scattered(8))
    for launch in case.record["launches"][1:][stretches]:
        launch["solos"][1]["waited_s"] = None
    assert said(judged(case)) == {}
    for launch in case.record["launches"]:
        for solo in launch["solos"]:
            solo["cpu_s"] = 0.01
    findings = [
        finding
        for finding in judged(case).findings
        if finding.code == "G3-PROCESSOR" and "alone used or awaited" in finding.message
    ]
    assert [finding.severity for finding in findings] == ["violation"] * 2


def test_times_from_a_table_and_a_machine_that_slept_are_no_clock():
    case = launched(honest("claim"), scattered(8))
    case.record["launches"][4]["slept_s"] = 40.0
    assert said(judged(case)) == {"G5-CLOCK": "the machine slept 40.0 s in launch 4"}


def test_two_sittings_are_compared_by_their_launches():
    def side(middle):
        case = launched(honest("claim"), scattered(8, middle=middle, sd=0.005))
        return MeasuredRun(case.files(), case.record_value(), case.spec_value(), "valid_not_citable")

    first, same, other = side(0.30), side(0.302), side(0.36)
    differences = {
        name: next(row for row in compare(first, two).differences if row.metric == "speedup_sittings")
        for name, two in (("same", same), ("other", other))
    }
    assert (differences["same"].detail["agree"], differences["other"].detail["agree"]) == (True, False)
    assert "differ by more than their launches say" in differences["other"].wording
    assert differences["other"].value == pytest.approx(math.exp(0.06), rel=0.02)


def asked(logs, word="slower"):
    case = launched(honest("claim"), logs)
    case.spec["commands"][0]["launches"]["asks"] = {"word": word, "margin": 1.02}
    return case


def test_a_run_that_was_asked_a_word_answers_it_and_its_number_is_no_claim():
    verdict = judged(asked(scattered(8)))
    claim = speed(verdict)
    assert claim.detail["answer"] == {"word": "slower", "answer": "no", "launches": 8}
    assert "ratio" in claim.missing
    assert said(verdict) == {
        "G5-LAUNCHES": "it was asked whether it is slower, in three looks: that is answered, and no number of it is "
        "measured"
    }
    assert "ratio" not in speed(judged(launched(honest("claim"), scattered(8)))).missing


def test_a_rate_of_a_run_that_was_asked_a_word_is_no_claim_either():
    """Such a run is no look of its family, so that of a sweep of them the best could be shown."""
    case = honest("native")
    (rate,) = [claim for claim in judged(case).claims if claim.role == "primary"]
    assert "attempts" not in rate.missing
    case.spec["commands"][0]["launches"]["asks"] = {"word": "slower", "margin": 1.02}
    (rate,) = [claim for claim in judged(case).claims if claim.role == "primary"]
    reason = "it was asked whether it is slower, and no number of it is counted; run it without --fail-if"
    assert f"attempts: G5-ATTEMPTS: {reason}" in rate.why


def test_a_run_that_goes_on_after_its_answer_is_rejected():
    verdict = judged(asked(scattered(11)))
    rejects = [finding.message for finding in verdict.findings if finding.severity == "reject"]
    assert "11 launches finished a pair, whether it is slower was answered after 8" in rejects


def loaded(logs, apart=0.2, pattern=(True, False, False, True)):
    """Return a run in whose every second launch the runner held processors, which moves the ratio."""
    at = [pattern[place % len(pattern)] for place in range(len(logs))]
    case = launched(honest("claim"), [log + apart * under for log, under in zip(logs, at, strict=True)])
    case.spec["commands"][0]["launches"] |= {"load": "drawn"}
    for launch in case.record["launches"]:
        launch["loaded"] = int(launch["number"] > 0 and at[launch["number"] - 1])
    return case


def test_a_load_that_was_drawn_gives_the_ratio_at_both_ends_and_the_slope():
    claim = speed(judged(loaded(scattered(20))))
    loads = claim.detail["loads"]
    assert "ratio" not in claim.missing, claim.why
    assert loads["free"]["value"] == pytest.approx(math.exp(0.3), rel=0.02)
    assert loads["slope"]["value"] == pytest.approx(math.exp(0.2), rel=0.02)
    assert claim.interval == pytest.approx((loads["free"]["interval"][0], loads["loaded"]["interval"][1]))
    assert ", the runner's own load among them: decode faster: 1.3" in claim.wording
    assert "with half of them held, 1.2" in claim.wording


def second_at_drawn_loads(earlier):
    """Return a second attempt, the first one beside it without what its gate said."""
    earlier.record["id"] = earlier.spec["id"] = EARLIER
    case = loaded(scattered(20))
    case.record["attempt"].update(number=2, earlier=[EARLIER])
    return speed(judged(case, {EARLIER: {RECORD_NAME: strictjson.encode(earlier.record)}}))


def test_both_ratios_at_drawn_loads_hold_with_and_without_an_attempt_in_doubt():
    alone = speed(judged(loaded(scattered(20))))
    claim = second_at_drawn_loads(loaded(scattered(20, middle=0.6, seed=2)))
    assert "1 earlier attempt in and out" in claim.wording
    assert (claim.n, claim.detail["attempts"]) == (40, 2)
    for end in ("free", "loaded"):
        low, high = claim.detail["loads"][end]["interval"]
        assert low == pytest.approx(alone.detail["loads"][end]["interval"][0]), "of this run alone"
        assert high > alone.detail["loads"][end]["interval"][1]
        low, high = math.floor(low * 100) / 100, math.ceil(high * 100) / 100  # never printed narrower than they are
        assert f"[{low:.2f}, {high:.2f}] 95 %" in claim.wording


def test_an_attempt_without_a_launch_at_each_load_is_no_sitting_of_theirs():
    claim = second_at_drawn_loads(loaded(scattered(1)))
    assert (claim.n, claim.detail["attempts"]) == (20, 1)
    assert claim.wording.startswith("in one sitting, ")


def test_a_word_that_holds_at_one_load_alone_is_not_said():
    claim = speed(judged(loaded(scattered(20, middle=0.0))))
    assert claim.detail["effect"] == "not slower (5 % margin)"


@pytest.mark.parametrize(
    ("case", "reason", "severity"),
    [
        (loaded(scattered(6)), "6 launches, a claim needs 8", "violation"),
        (loaded(scattered(20), pattern=(True, True, False, False)), "do not share out the load", "reject"),
    ],
)
def test_what_is_no_drawn_load_is_said(case, reason, severity):
    verdict = judged(case)
    assert any(reason in finding.message and finding.severity == severity for finding in verdict.findings)
    assert "ratio" in speed(verdict).missing
