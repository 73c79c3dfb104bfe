"""A cancelled run bars nothing; three that left nothing do, and nobody says so but the runner."""

from __future__ import annotations

import pytest

from bridge.gate.judging import RECORD_NAME, SPEC_NAME, judge
from bridge.limits import ATTEMPTS_LISTED_COUNT
from tests.corpus.gate.breaks import honest

EARLIER = [f"01jd7zk3v8q4w2m6x9c5b7n{number}t0" for number in range(1, 5)]


def said(earlier, unseen, number=None):
    case = honest("claim")
    case.record["attempt"].update(number=number or len(earlier) + 1, earlier=earlier, unseen=unseen)
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value())
    return [finding.message for finding in verdict.findings if finding.code == "G5-ATTEMPTS"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_cancelled_run_bars_nothing(count):
    assert said(EARLIER[:count], EARLIER[:count]) == []


def test_three_that_left_nothing_bar_the_claim():
    assert said(EARLIER[:3], EARLIER[:3]) == ["3 earlier attempts within 30 days left nothing to pool"]


def test_one_that_left_a_report_is_missing_where_it_is_not_pooled():
    assert said(EARLIER[:2], EARLIER[:1]) == [f"attempt 3: 1 earlier attempts are not pooled, e.g. {EARLIER[1]}"]
    assert said(EARLIER[:1], EARLIER[:2]) == ["an unseen attempt is no earlier one"]


def test_attempts_that_are_too_many_to_be_listed_are_counted_as_not_pooled():
    listed = [f"01jd7zk3v8q4w2m6x9c5b7{number:04d}" for number in range(ATTEMPTS_LISTED_COUNT)]
    assert said(listed, (), 300) == [f"attempt 300: 299 earlier attempts are not pooled, e.g. {listed[0]}"]
    assert said(listed, listed, 300)[1:] == [
        f"attempt 300: {299 - len(listed)} earlier attempts are not pooled, as they are not listed"
    ]
    for few in (listed[:-1], [*listed, EARLIER[0]], [*listed[:-1], listed[0]], []):
        assert said(few, (), 300)[0] == f"attempt 300 with {len(few)} earlier ones"


@pytest.mark.parametrize("record", [b"{}", b"nonsense", b'{"schema_version": 99}'])
def test_an_earlier_attempt_whose_record_another_version_wrote_is_missing_and_stops_no_judge(record):
    case = honest("turned")
    case.record["attempt"].update(number=2, earlier=EARLIER[:1])
    earlier = {EARLIER[0]: {RECORD_NAME: record, SPEC_NAME: record}}
    verdict = judge(case.run_id, case.files(), case.record_value(), case.spec_value(), earlier=earlier)
    (message,) = [finding.message for finding in verdict.findings if finding.code == "G5-ATTEMPTS"]
    assert message == f"attempt 2: 1 earlier attempts are not pooled, e.g. {EARLIER[0]}"
