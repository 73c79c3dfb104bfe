"""The sweep of a remote drafter: every point is paired prompt by prompt with plain decoding of the same prompts."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

pytest.importorskip("grpc", reason="remote drafters are asked over gRPC")

from benchmarks.studies.drafters.remote_sweep import (
    FORCED,
    PART,
    PLANNED,
    PROMPTS,
    TARGETS_MS,
    TRIPS_MS,
    cases,
    curve,
    points,
    summary,
)


def rows():
    arms = {("plain", None): 2.0, ("plain again", None): 2.0, ("elsewhere", 5): 1.0, ("elsewhere", 150): 4.0}
    return [
        {"prompt": "p", "number": number, "way": way, "trip_ms": trip, "asked": trip == 5, "decode_s": seconds}
        for number in range(3)
        for (way, trip), seconds in arms.items()
    ]


def speeds(entries, way):
    return {point: round(at.value, 3) for point, at in curve(entries, way).items()}


def test_a_point_is_paired_prompt_by_prompt():
    entries = [{"case": "40 ms a token, part 0", "rows": rows()}]
    assert speeds(entries, FORCED) == {(40, 5): 2.0, (40, 150): 0.5}
    assert {at.n for at in curve(entries).values()} == {3}
    assert summary(entries)[0].startswith("40 ms a token, elsewhere: 5 ms 2.00x [2.00, 2.00] n 3, 150 ms 0.50x")


def test_a_link_that_would_not_be_asked_over_counts_as_plain_decoding():
    entries = [{"case": "40 ms a token, part 0", "rows": rows()}]
    assert speeds(entries, PLANNED) == {(40, 5): 2.0, (40, 150): 1.0}


def test_plain_decoding_nearest_in_time_is_what_an_arm_is_compared_with():
    near = [row | {"plain_s": 3.0} if row["way"] != "plain" else row for row in rows()]
    entries = [{"case": "0 ms a token, part 0", "rows": near}]
    assert speeds(entries, FORCED)[0, 5] == 3.0
    assert speeds(entries, PLANNED)[0, 150] == 1.5


def test_a_point_without_plain_decodings_second_time_has_no_planned_speed():
    later = [row | {"number": row["number"] + 3} for row in rows() if row["way"] != "plain again"]
    entries = [{"case": f"40 ms a token, part {part}", "rows": of} for part, of in enumerate((rows(), later))]
    assert speeds(entries, PLANNED) == {(40, 5): 2.0}


def test_every_target_meets_every_link_with_all_prompts():
    counts = Counter((target, trip) for target, trips, _ in map(points, cases()) for trip in trips)
    assert counts == dict.fromkeys(set(product(TARGETS_MS, TRIPS_MS)), PROMPTS // PART)
