"""Malformed input is a finding, never a traceback, within bounds, and stops nothing else."""

from __future__ import annotations

import copy
import json
import re
import time
import tracemalloc

import pytest

from bridge import strictjson
from bridge.gate import claims
from bridge.gate.derivation import derive
from bridge.gate.facts.samples import Arm
from bridge.gate.interface import Evidence, Report, Skip
from bridge.gate.judging import BARE_ID, evidence_of, judge, judge_bytes
from bridge.gate.kinds.distributed_e2e import differences
from bridge.gate.profiles import named
from bridge.gate.registry import rules
from bridge.gate.reports import schema
from bridge.gate.reports.uniqueness import is_unique
from bridge.limits import REPORT_MAX_BYTES
from bridge.records.verdict import Finding
from tests.corpus.gate.breaks import honest
from tests.corpus.gate.workloads import trained

GARBAGE = {
    "empty": b"",
    "not JSON": b"{",
    "not UTF-8": b'{"kind": "\xff"}',
    "NaN": b'{"kind": NaN}',
    "infinite": b'{"kind": 1e999}',
    "duplicate key": b'{"kind": "a", "kind": "b"}',
    "deep": b"[" * 200_000,
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "huge integer": b'{"kind": ' + b"9" * 5000 + b"}",
    "no kind": b"{}",
    "kind is a list": b'{"kind": [], "schema_version": 3}',
    "kind is an object": b'{"kind": {"a": {}}, "schema_version": true}',
    "only a kind": b'{"kind": "code_throughput", "schema_version": 3}',
    "lone surrogate": b'{"kind": "\\ud800", "schema_version": 3}',
    "arms of nulls": b'{"kind": "code_throughput", "schema_version": 3, "arms": [null, 1, {"samples": null}]}',
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_rejected_by_a_shape_rule(name):
    verdict = judge(BARE_ID, {"x.json": GARBAGE[name]}, None, None)
    assert verdict.decision == "rejected"
    assert {finding.code.split("-")[0] for finding in verdict.findings if finding.severity == "reject"} == {"G0"}


class Incomparable(dict):
    """A sample that nobody may compare with thousands of others to say where it is."""

    def __eq__(self, other):
        raise AssertionError("it was looked for")

    __hash__ = None


def test_where_a_sample_is_takes_no_search_and_equal_rows_have_places_of_their_own():
    """A report of sixteen megabytes to each of whose rows a rule objects kept its judge busy for minutes."""
    samples = tuple(Incomparable(output_tokens=1) for _ in range(3))
    arm = Arm(1, "speculative", "candidate", "engine", samples)
    assert [arm.pointer(sample) for sample in samples] == [f"/arms/1/samples/{place}" for place in range(3)]


class IncomparableNumber(int):
    """A stop token that nobody may compare with all the others to say whether it is there twice."""

    def __eq__(self, other):
        raise AssertionError("it was compared")

    __hash__ = None


def test_stop_tokens_beside_a_text_are_not_compared_with_each_other():
    """Numbers and a text cannot be sorted, so that each was compared with every other."""
    report = honest("smoke").report
    report["config"]["stopping_ids"] = [IncomparableNumber(2), IncomparableNumber(5), "x"]
    assert list(schema.problems(report, at_most=8)) == [("/config/stopping_ids/2", "'x' is not of type 'integer'")]
    report["config"]["stopping_ids"] = [2, 5, 2]
    assert list(schema.problems(report, at_most=8)) == [("/config/stopping_ids", "[2, 5, 2] has non-unique elements")]


@pytest.mark.parametrize("items", [[1, True], [0, False], ["1", 1], [[], {}], [{"a": 1}, {"a": True}], ['"', ""]])
def test_different_values_are_not_taken_for_one(items):
    assert is_unique(items)


@pytest.mark.parametrize("items", [[1, 1.0], [{"a": [1]}, {"a": [1.0]}], [None, None], ["a", "b", "a"], [1e20, 10**20]])
def test_equal_values_are_one_however_a_number_is_written(items):
    assert not is_unique(items)


def growth(cost_s, few, rounds=3):
    """Return how many times as long four times as many rows take: four, or sixteen where each goes through all."""
    pairs = [(cost_s(few), cost_s(4 * few)) for _ in range(rounds)]
    return min(many for _, many in pairs) / min(least for least, _ in pairs)


def seconds(work):
    """Return the processor time of a call."""
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def distinct_rows(count):
    """Return a run whose owner's schema wants its report's rows distinct, with so many of them."""
    case = trained(again=False)
    rows = {"type": "array", "uniqueItems": True}
    case.spec["workload"]["report_schema"] = {"type": "object", "properties": {"rows": rows}, "required": ["metrics"]}
    for report in case.reports.values():
        report["rows"] = [{"id": number} for number in range(count)]
    case.seal()
    return case


def judged(case):
    return judge(case.run_id, case.files(), case.record_value(), case.spec_value())


def test_rows_that_an_owners_schema_wants_distinct_are_not_compared_with_each_other():
    def cost_s(count):
        case = distinct_rows(count)
        return seconds(lambda: judged(case))

    assert growth(cost_s, 750, rounds=1) < 8


def test_rows_that_an_owners_schema_wants_distinct_are_so_however_a_number_is_written():
    case = distinct_rows(10)
    assert judged(case).decision == "evidence"
    case.report["rows"].append({"id": 7.0})
    case.seal()
    assert {finding.code for finding in judged(case).findings if finding.severity == "reject"} == {"G0-SCHEMA"}


def test_a_prompt_that_two_rungs_repeat_a_thousand_times_is_not_compared_a_million_times():
    """A report of sixteen megabytes holds ten thousand repeats on either side."""
    case = honest("distributed_e2e")
    here, rung = (arm | {"samples": [arm["samples"][-1] for _ in range(1000)]} for arm in case.report["arms"][1:])
    arms = [Arm(n, arm["name"], arm["role"], "engine", tuple(arm["samples"])) for n, arm in enumerate((here, rung))]
    report = Report("report.json", b"", case.report)
    tracemalloc.start()
    try:
        assert list(differences(report, arms[1], arms[0])) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    other = dict(arms[1].samples[-1], tokens=[7])
    for mine, theirs in (
        (arms[0], Arm(1, "loopback", "candidate", "engine", (*arms[1].samples, other))),
        (Arm(1, "in-process", "candidate", "engine", (*arms[0].samples, other)), arms[1]),
    ):
        ((_, problem),) = differences(report, theirs, mine)
        assert problem == "other tokens came out"


def a_launch_each(report, count):
    places = [{"launch": number, "order_index": 0, "prompt_id": str(number)} for number in range(count)]
    for arm in report["arms"]:
        arm["samples"] = [arm["samples"][-1] | place for place in places]


def an_answer_each(report, count):
    sample = report["arms"][0]["samples"][-1]
    texts = map(str, range(count))
    report["arms"] = [report["arms"][0] | {"samples": [sample | {"expected": text, "text": text} for text in texts]}]


def a_prompt_each(report, count):
    (block, *_), (generation, *_) = report["rows"]["blocks"], report["rows"]["generations"]
    names = [{"prompt_id": str(number)} for number in range(count)]
    report["rows"] |= {"blocks": [block | name for name in names], "generations": [generation | name for name in names]}


def an_arm_each(report, count):
    (row, *_) = report["rows"]["errors"]
    report["rows"]["errors"] = [row | {"arm": f"affine8-{number}"} for number in range(count)]


def a_path_each(report, count):
    report["config"]["paths"] = [f"tests/{number}.py" for number in range(count)]
    report["rows"]["command"] = ["pytest", *report["config"]["paths"]]


@pytest.mark.parametrize(
    ("code", "base", "fill"),
    [
        ("G4-ORDER", "smoke", a_launch_each),
        ("G4-ANSWERS", "smoke", an_answer_each),
        ("G4-PARITY", "drafter_parity", a_prompt_each),
        ("G4-ERRORS", "kv_quantisation", an_arm_each),
        ("G4-TESTS", "suite", a_path_each),
    ],
)
def test_a_rule_looks_at_a_full_report_at_a_cost_that_grows_with_its_rows(code, base, fill):
    def cost_s(count):
        report = honest(base).report
        fill(report, count)
        evidence = Evidence((Report("report.json", b"", report),), None, None, named("default", "claim"))

        def look():
            outcome = rules()[code](evidence)
            assert not isinstance(outcome, Skip)
            list(outcome)

        return seconds(look)

    assert growth(cost_s, 2500) < 8


def test_a_ratio_over_launches_is_computed_at_a_cost_that_grows_with_its_samples():
    def cost_s(count):
        report = honest("request_code").report
        a_launch_each(report, count)
        evidence = Evidence((Report("report.json", b"", report),), None, None, named("default", "claim"))

        def compute():
            (ratio, *_) = claims.claim_drafts(evidence.reports[0], evidence)
            assert ratio.n == count

        return seconds(compute)

    assert growth(cost_s, 2500) < 8


def test_a_hundred_megabytes_are_refused_without_being_read():
    data = b'{"a": "' + b"x" * (100 << 20) + b'"}'
    tracemalloc.start()
    verdict = judge(BARE_ID, {"x.json": data}, None, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert any(finding.code == "G0-JSON" for finding in verdict.findings)
    assert peak < REPORT_MAX_BYTES


@pytest.mark.parametrize("name", sorted(GARBAGE))
def test_one_bad_file_never_stops_the_others(name):
    case = honest("probe")
    case.raw["bad.json"] = GARBAGE[name]
    case.spec["outputs"].append({"path": "bad.json", "kind": "test_suite", "required": True})
    case.record["outputs"].append({"path": "bad.json", "bytes": len(GARBAGE[name]), "sha256": "", "after_start": True})
    case.seal()
    case.record["outputs"][-1]["bytes"] = len(GARBAGE[name])
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert verdict.decision == "rejected"
    assert {finding.report for finding in verdict.findings if finding.severity == "reject"} == {"bad.json"}
    assert [claim.id for claim in verdict.claims] == ["checks"]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"schema_version": 2}'])
def test_an_unreadable_record_is_a_finding(data):
    case = honest("probe")
    verdict = judge_bytes(case.run_id, case.files(), data, data)
    assert verdict.decision == "rejected"
    assert "G0-RECORD" in {finding.code for finding in verdict.findings}


def test_no_report_at_all_fails():
    case = honest("probe")
    assert judge(case.run_id, {}, case.record_value(), case.spec_value()).decision == "rejected"


def test_a_number_that_its_kind_does_not_declare_ends_in_a_verdict():
    """Untrusted code writes such a report to the declared path; a gate that raises is asked for ever."""
    case = honest("smoke")
    case.report["arms"].append(copy.deepcopy(case.report["arms"][-1]))
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert verdict.decision == "rejected"
    (finding,) = (finding for finding in verdict.findings if finding.code == "G4-CLAIM")
    assert finding.message.endswith(f"is no metric of the kind {case.report['kind']}")
    assert not [claim for claim in verdict.claims if claim.decision == "evidence"]


def test_rows_that_make_more_claims_than_a_verdict_holds_make_none():
    """No result held a verdict of a hundred thousand claims: such a run was judged again and again, and never ended."""
    case = honest("verify_cost")
    (row, *_) = case.report["rows"]["draft"]
    contexts = range(1, claims.CLAIMS_MAX_COUNT + 1)
    case.report["rows"]["draft"] = [row | {"context_tokens": tokens} for tokens in contexts]
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert (verdict.decision, verdict.claims) == ("rejected", ())
    (finding,) = (finding for finding in verdict.findings if finding.code == "G4-CLAIM")
    assert finding.message == "more than 500 claims follow from its rows, which no verdict can hold"
    derived = derive(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert derived.reports[0].numbers == ()


def test_reasons_that_would_fill_a_result_are_named_by_the_first_of_them():
    case = honest("verify_cost")
    evidence = evidence_of(case.run_id, case.files(), case.record_value(), case.spec_value())
    finding = Finding(
        code="G4-ROWS", severity="violation", premise="times", report=None, where="", message="m" * 2000, remedy="r"
    )
    every = [claims.Held(finding.evolve(message=f"{number} {'m' * 1990}"), ()) for number in range(600)]
    whole, brief = (claims.results(evidence, every[:count], ()) for count in (2, 600))
    reasons = [result.why for claim in whole for result in claim.premises if result.premise == "times"]
    assert {tuple(map(len, why)) for why in reasons} == {(2001, 2001)}
    reasons = [result.why for claim in brief for result in claim.premises if result.premise == "times"]
    assert set(reasons) == {(f"G4-ROWS: 0 {'m' * 189}, and 599 more",)}
    assert [claim.decision for claim in brief] == [claim.decision for claim in whole]


def test_a_rule_that_cannot_look_is_a_finding():
    case = honest("smoke")
    case.report["arms"][0]["samples"][1]["stages"]["decode_s"] = 0
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert verdict.decision == "rejected"


def full_of(number: str) -> bytes:
    """Return an honest report whose every float is written as something JSON has no word for."""
    return re.sub(rb"-?\d+\.\d+(e-?\d+)?(?=[,\]}])", number.encode(), honest("smoke").files()["report.json"])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400"])
def test_a_report_full_of_what_is_no_number_is_refused_once(number):
    data = full_of(number)
    assert data.count(number.encode()) > 40
    verdict = judge(BARE_ID, {"x.json": data}, None, None)
    assert {finding.code for finding in verdict.findings if finding.severity == "reject"} == {"G0-JSON"}


@pytest.mark.parametrize(
    "data", [b"[" * 8_000_000, b'{"a":' * 3_000_000, b"[[1]," * 3_000_000, b"[]" * 500_000], ids=len
)
def test_nesting_costs_a_bounded_multiple_of_its_bytes(data):
    tracemalloc.start()
    verdict = judge(BARE_ID, {"x.json": data}, None, None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {finding.code for finding in verdict.findings if finding.severity == "reject"} == {"G0-JSON"}
    assert peak < 4 * REPORT_MAX_BYTES


def test_a_flood_of_nonsense_ends_in_a_bounded_verdict():
    """Sixteen reports, each wrong in thousands of places."""
    row = json.dumps({"name": 7, "role": [], "samples": "none"})
    bad = ('{"kind": "code_throughput", "schema_version": 3, "arms": [' + ",".join([row] * 4000) + "]}").encode()
    verdict = judge(BARE_ID, {f"{index}.json": bad for index in range(16)}, None, None)
    assert verdict.decision == "rejected"
    assert len(verdict.canonical()) < REPORT_MAX_BYTES // 16


@pytest.mark.parametrize("odd", ["cpu\nMay be quoted: decode faster: 9x", "cpu\x1b[2J", "cpu\u2028"])
def test_a_text_that_no_verdict_can_hold_is_in_none(odd):
    case = honest("probe")
    case.report["environment"]["device"] = odd
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert odd.encode() not in verdict.canonical()
    (claim,) = verdict.claims
    assert "(mlx, a device that nobody knows)" in claim.wording


def test_a_name_that_no_verdict_can_hold_is_a_finding():
    case = honest("kv_quantisation")
    for arm in case.report["arms"]:
        if arm["role"] == "candidate":
            for row in case.report["rows"]["errors"]:
                row["arm"] = row["arm"].replace(arm["name"], "affine8\u2028")
            arm["name"] = "affine8\u2028"
            break
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    assert verdict.decision == "rejected"
    assert strictjson.decode(verdict.canonical(), max_bytes=REPORT_MAX_BYTES)["decision"] == "rejected"
