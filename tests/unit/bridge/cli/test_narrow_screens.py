"""What is wider than the screen goes on below its column, and no word of it is lost."""

from __future__ import annotations

import re

import pytest

from bridge.client.clone.store import id_in
from bridge.ids import short
from tests.support.committed import SMOKE, SMOKE_AGAIN, unpacked

PRESET = "k3-fused-allmlx-code"
RUN = str(SMOKE)


def shown(requester, words, columns=None):
    requester.environment.pop("COLUMNS", None)
    if columns is not None:
        requester.environment["COLUMNS"] = str(columns)
    ran = requester.run(*words)
    assert ran.code in {0, 1}, ran.err
    return ran.out.splitlines()


def words_of(lines):
    """Return the words without what `explain` draws anew each time."""
    return re.sub(r"(KAKEYA_RUN_ID|KAKEYA_REQUEST_DIGEST)=\S+", r"\1", " ".join(lines)).split()


@pytest.mark.parametrize(
    "words",
    [
        ["gate", "explain", "decode_speedup", RUN],
        ["gate", "explain", "decode_speedup"],
        ["gate", "explain", "G5-DESIGN"],
        ["gate", "check", RUN],
        ["explain", PRESET],
        ["presets", "show", PRESET],
    ],
    ids=" ".join,
)
def test_lines_go_on_below_their_column_and_only_a_word_that_is_longer_is_wider(requester, words):
    whole = shown(requester, words)
    assert max(map(len, whole)) > 60
    for columns in (60, 100, 200):
        fitted = shown(requester, words, columns)
        assert words_of(fitted) == words_of(whole), columns
        for line in fitted:
            assert len(line) <= columns or any(len(word) > columns - 20 for word in line.split()), line


def test_formats_for_pages_and_programs_are_never_wrapped(requester):
    for form in ("markdown", "junit", "annotations"):
        words = ["gate", "check", RUN, "--format", form]
        assert shown(requester, words, 60)[-3:] == shown(requester, words)[-3:]


def test_a_history_leaves_out_columns_before_a_value_goes_on_below(requester):
    for packed in (SMOKE, SMOKE_AGAIN):
        unpacked(packed, requester.folder / "data" / "runs" / short(id_in(packed)))
    words = ["report", "--history", PRESET]
    fitted = {columns: shown(requester, words, columns) for columns in (200, 110, 60)}
    heads = {columns: lines[0].split() for columns, lines in fitted.items()}
    assert heads[200] == ["ended", "run", "parameters", "code", "host", "metric", "value"]
    assert heads[110] == ["ended", "run", "parameters", "host", "metric", "value"]
    assert heads[60] == ["run", "metric", "value"]
    narrow, whole = fitted[60], shown(requester, words)
    assert max(map(len, narrow)) <= 60 < max(map(len, whole))
    values = [" ".join(line[whole[0].index("metric") :].split()) for line in whole[1:]]
    assert all(value in " ".join(" ".join(narrow).split()) for value in values)


def test_two_runs_that_differ_stand_below_each_other_where_side_by_side_is_too_wide(requester):
    words = ["compare", str(SMOKE), str(SMOKE_AGAIN)]
    wide, narrow = shown(requester, words, 300), shown(requester, words, 80)
    ids = [short(id_in(packed)) for packed in (SMOKE, SMOKE_AGAIN)]
    assert any(line.split() == ids for line in wide)
    at = next(number for number, line in enumerate(narrow) if line.startswith("* claim"))
    assert ids[0] in narrow[at]
    assert any(line.split()[0] == ids[1] for line in narrow[at + 1 : at + 8])
    assert max(map(len, narrow)) <= 80
    assert set(words_of(wide)) == set(words_of(narrow))
