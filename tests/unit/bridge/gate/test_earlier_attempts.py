"""An earlier attempt that lost a premise enters no later claim unsaid."""

from __future__ import annotations

import copy
import json

import pytest

from bridge import strictjson
from bridge.gate.judging import RECORD_NAME, SPEC_NAME, VERDICT_NAME
from tests.corpus.gate.builders import judged
from tests.corpus.gate.launches import in_order
from tests.corpus.gate.turned import in_turns
from tests.corpus.gate.workloads import paired, trained

NAMES = [f"01jd7zk3v8q4w2m6x9c5b7n{number}t0" for number in range(1, 4)]


@pytest.fixture(scope="module")
def first():
    """Return an honest run in turns that other launches are spoilt of."""
    return in_turns(seed=5)


@pytest.fixture(scope="module")
def second():
    return in_turns()


def stored(case, name):
    """Return what the runner keeps of an attempt once its gate has judged it."""
    was, case.run_id = case.run_id, name
    for part in (case.record, case.spec, *case.reports.values()):
        text = json.dumps(part).replace(was, name)
        part.clear()
        part.update(json.loads(text))
    verdict = judged(case)
    record, spec = strictjson.encode(case.record), strictjson.encode(case.spec)
    documents = {RECORD_NAME: record, SPEC_NAME: spec, VERDICT_NAME: verdict.canonical()}
    return {**{path: json.dumps(report).encode() for path, report in case.reports.items()}, **documents}


def after(case, *attempts):
    """Judge a run after others of its question."""
    names = NAMES[: len(attempts)]
    case.record["attempt"].update(number=len(names) + 1, earlier=names)
    return judged(case, {name: stored(attempt, name) for name, attempt in zip(names, attempts, strict=True)})


def primary(verdict):
    return next(claim for claim in verdict.claims if claim.role == "primary")


def slow(case, kinds):
    for launch in case.record["launches"][1:]:
        for stamp in (stamp for kind in kinds for stamp in launch[kind]):
            if stamp["arm"] == "autoregressive":
                stamp["done_s"] += 0.17 * (stamp["done_s"] - stamp["go_s"])
    in_order(case.record["launches"])


def slow_everywhere(case):
    slow(case, ("turns", "solos"))


def slow_in_turns(case):
    slow(case, ("turns",))


def unconfirmed(case):
    slow_everywhere(case)
    case.record["commands"][-1]["exit_code"] = 1


def altered(case):
    slow_everywhere(case)
    case.record["code"]["altered"] = ["mlx_lm/generate.py"]


def dirty(case):
    slow_everywhere(case)
    case.record["code"]["dirty"] = True


@pytest.mark.parametrize("spoil", [altered, dirty])
def test_an_attempt_of_other_code_is_left_out_and_named(first, second, spoil):
    before = first.copy()
    spoil(before)
    claim, alone = primary(after(second.copy(), before)), primary(judged(second.copy()))
    assert (claim.n, claim.value, claim.interval) == (alone.n, alone.value, alone.interval)
    assert "1 earlier attempt left out (other code)" in claim.wording
    assert claim.citable, claim.why


@pytest.mark.parametrize(
    ("spoil", "lost"),
    [(slow_everywhere, "times"), (slow_in_turns, "times"), (unconfirmed, "bound, outputs, times")],
)
def test_one_that_its_program_could_have_spoilt_is_held_against_the_claim_with_and_without(first, second, spoil, lost):
    before = first.copy()
    spoil(before)
    claim, alone = primary(after(second.copy(), before)), primary(judged(second.copy()))
    assert claim.interval[0] <= alone.interval[0]
    assert claim.interval[1] > alone.interval[1]
    assert f"1 earlier attempt in and out (lost {lost})" in claim.wording


def test_an_attempt_that_holds_every_premise_is_pooled_and_needs_no_word(first, second):
    claim = primary(after(second.copy(), first.copy()))
    assert (claim.n, claim.citable) == (20, True), claim.why
    assert "earlier attempt" not in claim.wording


def test_the_third_that_was_spoilt_bars_the_claim(first, second):
    spoilt = [in_turns(seed=seed) for seed in (5, 6, 7)]
    for attempt in spoilt:
        slow_everywhere(attempt)
    claim = primary(after(second.copy(), *spoilt))
    assert "attempts" in claim.missing
    assert any("3 earlier attempts within 30 days lost what the claim rests on" in why for why in claim.why)


def test_seeds_of_a_changed_program_are_in_no_median():
    before = trained((0.5, 0.51, 0.52, 0.53, 0.54, 0.55), again=False, basis=NAMES[0])
    before.record["code"]["programs"] = copy.deepcopy(before.record["code"]["programs"])
    before.record["code"]["programs"][0]["sha256"] = "0" * 64
    claim, alone = primary(after(trained(again=False), before)), primary(judged(trained(again=False)))
    assert (claim.n, claim.interval) == (alone.n, alone.interval)
    assert "1 earlier attempt left out (other code)" in claim.wording
    assert claim.citable, claim.why


def test_a_pair_whose_baseline_slept_makes_the_claim_what_holds_with_and_without():
    spoilt, case = paired((0.6,) * 8, busy=(0.2, 0.98)), paired((0.0,) * 8)
    assert not primary(judged(spoilt.copy())).citable
    claim = primary(after(case, spoilt))
    assert claim.interval[0] < 1.01
    assert claim.detail["effect"] != "faster"
    assert "in and out (lost times)" in claim.wording


def test_a_pair_during_which_the_machine_slept_is_left_out_and_named():
    spoilt, case = paired((0.6,) * 8), paired((0.0,) * 8)
    spoilt.record["launches"][3]["slept_s"] = 600.0
    claim, alone = primary(after(case, spoilt)), primary(judged(paired((0.0,) * 8)))
    assert claim.interval == alone.interval
    assert "1 earlier attempt left out (the machine was not fit)" in claim.wording


def test_a_cell_that_was_one_of_several_spoils_no_median_that_it_is_pooled_into():
    before, case = trained(again=False, basis=NAMES[0]), trained(again=False)
    before.record["attempt"]["looks"] = case.record["attempt"]["looks"] = 8
    alone = primary(judged(before.copy()))
    assert (alone.decision, alone.missing) == ("valid", ("inputs",))
    claim = primary(after(case, before))
    assert (claim.n, claim.interval, claim.decision) == (12, (1.90, 1.97), "evidence"), claim.why
    assert ", best of 8" in claim.wording
    assert "earlier attempt" not in claim.wording


def test_cells_that_were_one_of_several_bar_no_later_number():
    attempts = [trained(again=False, basis=name) for name in NAMES]
    case = trained(again=False)
    for attempt in (*attempts, case):
        attempt.record["attempt"]["looks"] = 8
    claim = primary(after(case, *attempts))
    assert (claim.n, claim.decision) == (24, "evidence"), claim.why


def test_an_attempt_behind_one_that_was_not_reproduced_is_whole_once_that_one_is_long_ago():
    broken, behind, case = trained(basis=NAMES[0]), trained(basis=NAMES[1]), trained()
    broken.record["commands"][-1]["answer"] = '{"final_loss": 1.0}'
    before = {NAMES[0]: stored(broken, NAMES[0])}
    behind.record["attempt"].update(number=2, earlier=[NAMES[0]])
    files = stored(behind, NAMES[1])
    verdict = judged(behind, before)
    assert primary(verdict).missing == ("outputs",), primary(verdict).why
    case.record["attempt"].update(number=2, earlier=[NAMES[1]])
    claim = primary(judged(case, {NAMES[1]: {**files, VERDICT_NAME: verdict.canonical()}}))
    assert (claim.n, claim.decision) == (12, "evidence"), claim.why
    assert "earlier attempt" not in claim.wording
