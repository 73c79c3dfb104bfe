"""Which premise of a claim fell, by which rule, and that no other did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.gate.judging import judge
from tests.corpus.gate.breaks import recomputed
from tests.corpus.gate.builders import Case
from tests.corpus.gate.studies import acceptance
from tests.corpus.gate.turned import commits_in_turns, in_turns

BASELINE, COMMITS = "baseline_tokens_per_s", "decode_speedup"
_MADE: dict[str, Case] = {}


def honest(claim: str) -> Case:
    """Return a fresh copy of an honest claim run."""
    if claim not in _MADE:
        names = ("autoregressive", "autoregressive_again")
        _MADE[claim] = in_turns(names=names) if claim == BASELINE else commits_in_turns()
    return _MADE[claim].copy()


def patched(case: Case) -> None:
    case.record["code"]["altered"] = ["mlx_lm/added.abi3.so"]


def no_nonce(case: Case) -> None:
    case.record["nonce"] = None


def other_tokens(case: Case) -> None:
    recomputed(case, worst_gap=0.3)


def asleep(case: Case) -> None:
    case.record["launches"][4]["slept_s"] = 40.0


def no_reference(case: Case) -> None:
    for launch in case.record["launches"]:
        launch["reference"] = None


def shared(case: Case) -> None:
    """Let a load program keep a quarter of the machine busy."""
    for sample in case.record["telemetry"]["samples"]:
        sample["other_cpu_share"] = 0.25


def on_battery(case: Case) -> None:
    case.record["telemetry"]["power"] = ["mains", "battery"]


def few_launches(case: Case) -> None:
    case.record["launches"] = case.record["launches"][:6]
    for arm in case.report["arms"]:
        arm["samples"] = [sample for sample in arm["samples"] if sample["launch"] < 5]
    if "passes" in case.report.get("rows", {}):
        case.report["rows"]["passes"] = [list(range(5))]


def unknown_attempts(case: Case) -> None:
    case.record["attempt"].update(number=2, earlier=["01jd7zk3v8q4w2m6x9c5b7n1t0"])


@pytest.mark.parametrize("claim", [BASELINE, COMMITS])
def test_an_honest_run_lacks_no_premise(claim: str) -> None:
    assert fallen(honest(claim), claim) == ((), ())


@pytest.mark.parametrize(
    ("claim", "change", "premise", "rule"),
    [
        (BASELINE, patched, "code", "G2-CODE"),
        (BASELINE, no_nonce, "inputs", "G2-DRAWN"),
        (BASELINE, other_tokens, "outputs", "G2-RECOMPUTED"),
        (BASELINE, asleep, "times", "G5-CLOCK"),
        (BASELINE, no_reference, "times", "G5-REFERENCE"),
        (BASELINE, shared, "machine", "G8-STATE"),
        (BASELINE, on_battery, "machine", "G8-STATE"),
        (BASELINE, unknown_attempts, "attempts", "G5-ATTEMPTS"),
        (COMMITS, patched, "code", "G2-CODE"),
        (COMMITS, asleep, "times", "G5-CLOCK"),
        (COMMITS, unknown_attempts, "attempts", "G5-ATTEMPTS"),
    ],
)
def test_each_premise_falls_alone_and_by_its_rule(
    claim: str, change: Callable[[Case], None], premise: str, rule: str
) -> None:
    case = honest(claim)
    change(case)
    missing, rules = fallen(case, claim)
    assert missing == (premise,)
    assert rule in rules


@pytest.mark.parametrize("claim", [BASELINE, COMMITS])
def test_too_few_launches_are_said_as_such(claim: str) -> None:
    case = honest(claim)
    few_launches(case)
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    judged_claim = next(entry for entry in verdict.claims if entry.id == claim)
    assert "times" in judged_claim.missing
    assert "G4-TURNS: too few launches finished for their stamps to say it" in " ".join(judged_claim.why)


@pytest.mark.parametrize("change", [no_nonce, other_tokens, shared, on_battery])
def test_a_ratio_of_two_commits_bears_what_only_others_rest_on(change: Callable[[Case], None]) -> None:
    case = honest(COMMITS)
    change(case)
    assert fallen(case, COMMITS) == ((), ())


def fallen(case: Case, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the premises that a claim lacks, and the rules that took them."""
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    claim = next(claim for claim in verdict.claims if claim.id == name)
    return claim.missing, tuple(why.split(": ")[1] for why in claim.why)


def test_an_arm_that_never_drafted_is_not_evidence_of_identity() -> None:
    case = acceptance(skip=1.0).seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    claims = {claim.id: claim for claim in verdict.claims}
    assert claims["identical_prompts"].decision == "valid"
    assert "no sample of 'speculative' drafted a token" in claims["identical_prompts"].why[0]
    assert claims["acceptance_length"].value == 1.0
    some = acceptance(skip=0.5).seal()
    verdict = judge(some.run_id, some.files(), some.record_value(), some.spec_value())
    assert {claim.id: claim.decision for claim in verdict.claims}["identical_prompts"] == "evidence"
