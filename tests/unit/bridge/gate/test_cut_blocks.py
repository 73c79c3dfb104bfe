"""A block of prompts that only a cut launch met: which of them it never reached is not known, their order is."""

from __future__ import annotations

import pytest

from bridge.gate.judging import judge
from tests.corpus.gate.turned import in_turns


@pytest.fixture(scope="module")
def honest():
    """Return a run of five launches, as a slow machine has time for."""
    case = in_turns()
    case.record["launches"] = case.record["launches"][:6]
    for arm in case.report["arms"]:
        arm["samples"] = [row for row in arm["samples"] if row["launch"] < 5]
    return case


def order_found(case):
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    return " ".join(finding.message for finding in verdict.findings if finding.code == "G4-ORDER")


def cut(case, launch, count):
    """End a launch after so many of its prompts."""
    prompt_ids = [row["prompt_id"] for row in case.report["arms"][0]["samples"] if row["launch"] == launch - 1]
    for arm in case.report["arms"]:
        arm["samples"] = [
            row for row in arm["samples"] if row["launch"] != launch - 1 or row["prompt_id"] in prompt_ids[:count]
        ]
    record = case.record["launches"][launch]
    warmups = len({turn["sample"] for turn in record["turns"]}) - len(prompt_ids)
    record["turns"] = [turn for turn in record["turns"] if turn["sample"] < warmups + count]
    record.update(cut="the run had no more time", solos=[], reference=None)
    return record


@pytest.mark.parametrize("count", [0, 1, 7])
def test_the_only_launch_of_a_block_that_was_cut_makes_no_run_a_lie(honest, count):
    case = honest.copy()
    launch = cut(case, 2, count)
    assert order_found(case) == ""
    launch["nonce"] = "cd" * 32
    assert ("did not meet the prompts of block 1" in order_found(case)) is (count > 1)


def test_prompts_of_another_block_are_not_those_of_the_cut_one(honest):
    case = honest.copy()
    first, second = cut(case, 2, 5), cut(case, 4, 5)
    assert order_found(case) == ""
    first["block"], second["block"] = second["block"], first["block"]
    assert "did not meet the prompts of block" in order_found(case)


def test_the_other_launches_are_held_to_their_blocks_as_before(honest):
    case = honest.copy()
    cut(case, 2, 0)
    case.record["launches"][1]["nonce"] = "cd" * 32
    assert "did not meet the prompts of block 0" in order_found(case)


def test_a_block_that_ended_with_fewer_prompts_than_others_is_found(honest):
    case = honest.copy()
    rows = case.report["arms"][0]["samples"]
    gone = next(row["prompt_id"] for row in rows if row["launch"] == 3 and not row["is_warmup"])
    for arm in case.report["arms"]:
        arm["samples"] = [row for row in arm["samples"] if row["prompt_id"] != gone]
    assert "blocks of equal length" in order_found(case)
