"""Durations are written and read alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.durations import age_text, duration_text, measured_text, parse_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"), (0.31, "0.3s"), (0.7, "1s"), (13.4, "13s"), (60, "1m"), (245, "4m5s"), (3600, "1h"),
        (5400, "1h30m"), (5430, "1h30m"), (86400, "1d"), (190_000, "2d4h"), (-3, "0.0s"),
    ],
)  # fmt: skip
def test_a_duration_is_said_in_its_two_largest_units(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0s"), (1.53, "1.5s"), (9.97, "10s"), (5400, "1h30m")])
def test_a_measured_duration_keeps_tenths_below_ten_seconds(seconds, text):
    assert measured_text(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(5, "5s"), (119, "119s"), (300, "5m"), (7199, "119m"), (90_000, "25h")])
def test_an_age_is_said_in_one(seconds, text):
    assert age_text(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1h30m", 5400), ("2d", 172_800), ("1.5s", 1.5), ("0", 0)]
)
def test_a_duration_is_read_with_and_without_units(text, seconds):
    assert parse_duration(text) == seconds
    assert parse_duration("30", unit_s=86400.0) == 2_592_000


@pytest.mark.parametrize("text", ["", "s", "1m2h", "-5", "1h-3m", "nan", "inf", "1e3", "٣", "9999999999", "1 h"])
def test_what_is_no_duration_is_refused_with_both_forms(text):
    with pytest.raises(ValueError, match="1h30m"):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=10**8))
def test_what_is_written_is_read_back_but_for_what_was_left_out(seconds):
    read = parse_duration(duration_text(seconds))
    assert read <= seconds < read * 1.1 + 1
