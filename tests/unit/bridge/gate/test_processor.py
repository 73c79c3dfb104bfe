"""Decode time that no processor spent was not decoding, wherever else in the run the processor was busy."""

from __future__ import annotations

import pytest

from bridge.gate.judging import judge
from tests.corpus.gate.breaks import honest


def judged(case):
    """Return whether a ratio of times may rest on them, as far as this rule goes, and where it fell."""
    verdict = judge(case.run_id, case.seal().files(), case.record_value(), case.spec_value(), authority="host")
    why = [reason for claim in verdict.claims for reason in claim.why]
    assert verdict.decision != "rejected", verdict.why
    places = {finding.where for finding in verdict.findings if finding.code == "G3-PROCESSOR"}
    return any(reason.startswith("times: G3-PROCESSOR") for reason in why), places


def share(case, of_decoding, *places):
    """Let the commands at these places have had this share of the decode time they report, all commands if none."""
    samples = [sample for arm in case.report["arms"] for sample in arm["samples"] if arm["name"] != "peer"]
    for place in places or range(5):
        decode_s = sum(sample["stages"]["decode_s"] for sample in samples if sample["launch"] == place)
        case.record["commands"][place]["cpu_s"] = of_decoding * decode_s


@pytest.mark.parametrize("name", ["claim", "request_code", "commit_comparison", "distributed_bench"])
def test_an_arm_that_had_a_third_of_a_processor_worked(name):
    case = honest(name)
    share(case, 0.37)
    assert judged(case) == (False, set())


@pytest.mark.parametrize("name", ["claim", "request_code", "commit_comparison", "distributed_bench"])
def test_an_arm_that_had_less_than_a_tenth_is_not(name):
    case = honest(name)
    share(case, 0.09)
    names = {command["name"] for command in case.record["commands"][:5]}
    assert judged(case) == (True, names)


def test_a_tenth_is_asked_of_each_command():
    case = honest("claim")
    share(case, 0.09, 3)
    assert judged(case) == (True, {case.record["commands"][3]["name"]})


@pytest.mark.parametrize("name", ["kv_quantisation", "distributed_e2e", "verify_cost", "fused_graph_probe"])
def test_what_is_not_marked_is_held_against_the_whole_run(name):
    assert judged(honest(name)) == (False, set())
    case = honest(name)
    for command in case.record["commands"]:
        if command["name"] != "recompute":  # it computes what they should have
            command["cpu_s"] = 0.0
    assert judged(case) == (True, {"commands"})


@pytest.mark.parametrize("name", ["claim", "verify_cost"])
def test_an_accelerator_s_time_is_no_processor_time(name):
    case = honest(name)
    case.report["environment"]["device"] = "metal"
    for command in case.record["commands"]:
        command["cpu_s"] = 0.0
    assert judged(case)[1] == set()
