"""What may be said of two commits: slower only when both passes say so, and a pass is a whole design."""

from __future__ import annotations

import copy

import pytest

from bridge.gate.judging import judge
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.builders import Case, state_claims
from tests.corpus.gate.generations import COMMITS, Plan, code_throughput
from tests.corpus.gate.studies import commit_comparison
from tests.corpus.gate.turned import commits_in_turns

RUN = "decode_speedup"


def judged(case, **more):
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value(), **more)


def claim(verdict):
    return next(claim for claim in verdict.claims if claim.id == RUN)


def codes(verdict):
    return {finding.code for finding in verdict.findings}


def slowed(case: Case, factor: float, launches: range) -> Case:
    """Let the head take longer in some launches, in report and marks alike."""
    marks = case.record["sample_marks"]
    head = next(arm for arm in case.report["arms"] if arm["name"] == "head")
    late = 0.0
    extra = {}
    for sample in head["samples"]:
        if sample["launch"] in launches:
            more = sample["stages"]["decode_s"] * (factor - 1.0)
            sample["stages"]["decode_s"] += more
            sample["stages"]["total_s"] += more
            extra[sample["id"]] = more
    for mark in marks:
        if mark["event"] == "end":
            late += extra.get(mark["sample"], 0.0)
        mark["t_s"] += late
    return case


def two_passes(first: float, second: float) -> Case:
    """Return a comparison of ten launches, the second five of the prompts of the first."""
    base = code_throughput(Plan(arms=COMMITS, step_s=0.07, launches=10), "commit_comparison")
    comparison = commit_comparison()
    for name in ("config",):
        base.report[name] = copy.deepcopy(comparison.report[name])
    base.report["rows"] = {**comparison.report["rows"], "passes": [list(range(5)), list(range(5, 10))]}
    for part in ("base", "code", "trust_class", "tree"):
        base.spec[part] = comparison.spec[part]
    base.record["code"].update(comparison.record["code"])
    base.record["imported"] = comparison.record["imported"]
    slowed(base, first, range(5))
    return slowed(base, second, range(5, 10))


def wording(first: float, second: float) -> tuple[str, dict]:
    speedup = claim(judged(state_claims(two_passes(first, second))))
    return speedup.wording, speedup.detail


def test_identical_code_is_equivalent_and_says_its_noise_floor():
    speedup = claim(judged(honest("commit_comparison")))
    assert speedup.wording.startswith("head and base are equivalent within 5 %")
    assert speedup.detail["noise_floor"] < 0.05
    assert speedup.detail["same_code"] is False


def test_slower_is_said_after_two_passes_and_not_after_one():
    sentence, detail = wording(1.3, 1.3)
    assert sentence.startswith("head is slower than base by more than 5 %, confirmed by a second pass")
    assert (detail["slower"], detail["slower_passes"]) == (True, 2)
    sentence, detail = wording(1.3, 1.0)
    assert sentence.startswith("not confirmed: one of 2 passes found head slower")
    assert detail["slower"] is False


def test_a_slow_first_pass_alone_is_not_citable_and_calls_nothing_slower():
    verdict = judged(state_claims(slowed(honest("commit_comparison"), 1.3, range(5))))
    assert "G5-CONFIRM" in codes(verdict)
    assert not claim(verdict).wording.startswith("head is slower")


def test_each_pass_is_held_to_the_profiles_design():
    case = two_passes(1.3, 1.3)
    verdict = judged(state_claims(case))
    design = [finding.message for finding in verdict.findings if finding.code == "G5-DESIGN"]
    assert not [message for message in design if "launches" in message], design
    case.report["rows"]["passes"] = [list(range(4)), list(range(4, 10))]
    design = [finding.message for finding in judged(state_claims(case)).findings if finding.code == "G5-DESIGN"]
    assert {"4 launches, the design has 5", "6 launches, the design has 5"} <= set(design)


def test_a_second_attempt_at_the_same_commits_is_not_citable():
    case = honest("commit_comparison")
    earlier = "01jd7zk3v8q4w2m6x9c5b7n1tb"
    case.record["attempt"] = {"number": 2, "earlier": [earlier], "key": case.record["attempt"]["key"]}
    verdict = judged(case, earlier={earlier: case.files()})
    assert any("earlier attempts at these commits" in why for why in claim(verdict).why)
    assert not claim(verdict).citable


@pytest.mark.parametrize(
    ("slower", "opening"), [(1.2, "head is slower than base by more than 5 %"), (1.0, "head and base are equivalent")]
)
def test_turns_that_were_handed_out_decide_over_launches_without_a_second_pass(slower, opening):
    verdict = judged(commits_in_turns(slower))
    speedup = claim(verdict)
    assert speedup.decision == "evidence", speedup.why
    assert speedup.wording.startswith(f"in one sitting, 5 % of the machine used by others: {opening}")
    assert speedup.wording.endswith("both as identified")
    assert (speedup.detail["slower"], speedup.n) == (slower > 1.1, 10)


def test_a_head_that_is_slower_within_the_margin_is_not_called_slower():
    speedup = claim(judged(commits_in_turns(1.04)))
    assert speedup.interval[1] < 0.98
    assert (speedup.detail["slower"], speedup.detail["effect"]) == (False, "no difference shown")


def test_too_few_launches_of_two_commits_carry_no_claim():
    case = commits_in_turns(1.2)
    case.record["launches"] = case.record["launches"][:6]
    for arm in case.report["arms"]:
        arm["samples"] = [sample for sample in arm["samples"] if sample["launch"] < 5]
    case.report["rows"]["passes"] = [list(range(5))]
    verdict = judged(case.seal())
    assert "G5-LAUNCHES" in codes(verdict)
    assert not claim(verdict).citable


def test_launches_that_their_own_program_cut_before_an_arm_ran_alone_time_nothing():
    """With no stretch alone left there is nothing that disagrees with the turns, and nobody who slept."""
    case = commits_in_turns(1.2)
    for launch in case.record["launches"][1:]:
        launch.update(cut="turn 90 was answered by {}", solos=[])
    speedup = claim(judged(case.seal()))
    assert speedup.missing == ("times",)
    assert "10 of 10 launches that count were cut before their end, e.g. launch 1: turn 90" in speedup.why[0]


def test_turns_beside_which_no_commit_was_to_run_alone_time_nothing():
    case = commits_in_turns(1.2)
    case.spec["commands"][0]["launches"]["solo_s"] = 0.0
    for launch in case.record["launches"]:
        launch["solos"] = []
    speedup = claim(judged(case.seal()))
    assert speedup.missing == ("times",)
    assert "no arm was to run alone" in speedup.why[0]


def other_base(case):
    case.spec["base"] = "ee" * 20


def other_head(case):
    case.record["code"]["identity"] = "ee" * 20


def other_margin(case):
    case.spec["params"]["margin"] = case.report["run"]["params"]["margin"] = 0.2


def no_base(case):
    case.spec["base"] = None


def other_tree(case):
    case.report["rows"]["trees"]["base"]["commit"] = "ee" * 20


@pytest.mark.parametrize("change", [other_base, other_head, other_margin, no_base, other_tree])
def test_commits_and_margin_are_the_ones_that_were_asked_for(change):
    case = honest("commit_comparison")
    assert "G4-TREES" not in codes(judged(case))
    change(case)
    assert "G4-TREES" in codes(judged(case.seal()))
