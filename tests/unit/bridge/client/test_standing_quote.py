"""Six folders of one set are quoted and verified as one claim, and as none where one of them is not there."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace

import pytest

from bridge.bus.tree import Tree
from bridge.client.evidence.judged import JudgedResult
from bridge.client.evidence.standing import StandingSet, quote_set
from bridge.client.run.result import Result
from bridge.gate.judging import judge
from bridge.records.manifest import Manifest
from bridge.records.verdict import StoredVerdict
from bridge.trust.judgement import TrustAnswer
from tests.corpus.gate.turned import sitting

pytestmark = pytest.mark.ci
VERIFIED = TrustAnswer("verified", "signed by desk")


def judged(number: int, answer: TrustAnswer = VERIFIED, load: float | None = None) -> JudgedResult:
    """Return a sitting of the corpus as a reader has it who knows its key."""
    case = sitting(number).copy()
    for sample in case.record["telemetry"]["samples"] if load is not None else ():
        sample["other_cpu_share"] = load
    case.seal()
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    run_id = f"{case.run_id[:-1]}{number}"
    files = {f"reports/{path}": data for path, data in case.files().items()}
    files |= {"run.json": case.record_value().canonical(), "spec.json": case.spec_value().canonical()}
    stored = StoredVerdict.parse(verdict.canonical(), max_bytes=1 << 26)
    reports = {path: json.loads(data) for path, data in case.files().items() if path == "report.json"}
    record, spec = case.record_value().evolve(id=run_id), case.spec_value()
    result = Result(run_id, Tree(files), Manifest.model_construct(id=run_id), None, record, stored, spec, reports)
    return JudgedResult(result, verdict, answer)


@pytest.fixture(scope="module")
def six() -> list[JudgedResult]:
    return [judged(number) for number in range(6)]


def test_one_sentence_says_how_many_over_how_long_at_which_load_and_one_line_checks_all(six):
    quoted = quote_set(StandingSet.of(six))
    decode = next(line for line in quoted.lines if ": decode faster: " in line)
    assert "over 6 sittings in 1h" in decode
    assert "% of the machine used by others; the next sitting [" in decode
    assert "; signed by desk; runs " in decode
    ids = [result.result.id for result in six]
    assert quoted.lines[-1] == f"check: kakeya-mac verify {' '.join(ids)}"
    (claim,) = [claim for claim in StandingSet.of(six).data() if claim.claim == "decode_speedup"]
    assert (claim.quotation, claim.span_s > 3600.0) == ("quotable", True)
    mean = statistics.fmean(sitting.log_ratio for sitting in claim.sittings)
    assert claim.ends[0].value == pytest.approx(math.exp(mean))


def test_a_folder_that_is_missing_takes_the_claim_and_is_named(six):
    quoted = quote_set(StandingSet.of([*six[:3], *six[4:]]))
    assert quoted.lines == []
    reasons = {row.claim: row.why for row in quoted.refused}
    assert "sitting 4 of 6 is missing" in reasons["decode_speedup"]


def test_a_sitting_without_a_finished_pair_leaves_each_other_one_its_own_run(six):
    cut = six[1].result
    nothing = replace(six[1], result=replace(cut, record=cut.record.evolve(launches=())))
    claims = StandingSet.of([six[0], nothing, *six[2:]]).data()
    (claim,) = [claim for claim in claims if claim.claim == "decode_speedup"]
    rows = [(sitting.id, sitting.attempt) for sitting in claim.sittings]
    assert rows == [(six[number].result.id, number + 1) for number in (0, 2, 3, 4, 5)]
    assert claim.quotation == "measured"


@pytest.mark.parametrize("word", ["altered", "untrusted"])
def test_a_folder_that_nobody_known_signed_takes_the_claim(six, word):
    spoilt = [*six[:5], judged(5, TrustAnswer(word, "nobody known"))]
    assert quote_set(StandingSet.of(spoilt)).lines == []


def test_loads_further_apart_than_fifteen_points_are_said_at_both_ends():
    loads = (0.0, 0.0, 0.25, 0.25, 0.5, 0.5)
    quoted = quote_set(StandingSet.of([judged(number, load=load) for number, load in enumerate(loads)]))
    decode = next(line for line in quoted.lines if ": decode faster at each load: " in line)
    assert " at 0 %, " in decode
    assert " at 50 % of the machine used by others; the next sitting [" in decode
