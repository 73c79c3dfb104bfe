"""Sentences that tests show: their tests exist, their lines say how they ended, and a red one stays open."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.show.line import Line
from benchmarks.show.proofs import outcome, proved
from benchmarks.show.registry import LINES
from benchmarks.studies.proofs import PROOFS, STUDIES
from benchmarks.studies.registry import STUDIES as REGISTERED
from benchmarks.studies.report import ROOT, report_of

CASES = [(area, case) for area, cases in PROOFS.items() for case in cases]


@pytest.mark.parametrize(("area", "case"), CASES)
def test_what_is_run_exists_and_a_line_of_the_area_says_how_it_ended(area: str, case: str) -> None:
    paths = [word for word in PROOFS[area][case] if word.startswith("tests/")]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert proved("", area, case).command in [line.command for line in LINES[area]]
    assert STUDIES[area] in REGISTERED[area]


def test_a_line_shows_the_newest_outcome_of_its_own_tests(tmp_path: Path) -> None:
    area, case = "bus", "three findings"
    assert outcome(area, case, tmp_path) is None
    report = report_of(area, STUDIES[area].name, tmp_path)
    for name, said in ((case, "3 passed"), ("fair between principals", "9 passed"), (case, "4 passed")):
        report.append({"case": name, "rows": [{"outcome": said}]})
    assert outcome(area, case, tmp_path) == "4 passed"


def test_a_command_can_be_pasted_whatever_its_words_are() -> None:
    line = proved("asked for", "bus", "40 kinds of hostile refs")
    assert line == Line("asked for", line.command, line.figure)
    assert line.command == "python -m pytest -n 0 -q -m '' tests/integration/bus/test_hostile_refs.py"


@pytest.mark.parametrize(
    ("body", "said"), [("assert 1 == 2", "assert 1 == 2"), ("pytest.skip('no bwrap here')", "1 passed, 1 skipped")]
)
def test_a_sentence_is_left_open_whose_tests_fail_or_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, said: str
) -> None:
    file = tmp_path / "test_odd.py"
    file.write_text(f"import pytest\n\ndef test_even(): pass\n\ndef test_odd():\n    {body}\n")
    monkeypatch.setitem(PROOFS["bus"], "odd", (str(file),))
    with pytest.raises(RuntimeError, match=said):
        STUDIES["bus"].run("odd")
