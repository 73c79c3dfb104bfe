"""What an area's own tests add to `make test`: its files exist, all are run once, and nothing is subtracted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.show.own_tests import added, adds
from benchmarks.show.registry import LINES
from benchmarks.studies.own_tests import NAME, PLACES, STUDIES, case, files, measured
from benchmarks.studies.registry import STUDIES as REGISTERED
from benchmarks.studies.report import ROOT, report_of

BUSY = """
import subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < .3: pass"

def test_here():
    end = time.process_time() + .3
    while time.process_time() < end: pass

def test_there():
    subprocess.run([sys.executable, "-c", BURN], check=True)

def test_waiting():
    time.sleep(.3)

@pytest.mark.slow
def test_left_out():
    raise AssertionError

def test_elsewhere():
    pytest.skip("not this machine")
"""


@pytest.mark.parametrize("area", PLACES)
def test_an_areas_own_files_exist_once_and_are_a_study_and_a_line_of_it(area: str) -> None:
    found = files(area)
    assert [file for file in found if not (ROOT / file).is_file()] == []
    assert len(set(found)) == len(found)
    assert STUDIES[area] in REGISTERED[area]
    assert adds(area).text in [line.text for line in LINES[area]]


def test_processor_seconds_are_booked_on_their_file_and_add_up(tmp_path: Path) -> None:
    busy, idle = tmp_path / "test_busy.py", tmp_path / "test_idle.py"
    busy.write_text(BUSY)
    idle.write_text("def test_nothing(): pass\n")
    row = measured([str(busy), str(idle)])
    by_name = {Path(name).name: one for name, one in row["files"].items()}
    assert (by_name["test_busy.py"]["tests"], by_name["test_busy.py"]["skipped"]) == (3, 1)
    assert by_name["test_busy.py"]["processor s"] >= 0.5
    assert by_name["test_idle.py"]["processor s"] < 0.3
    parts_s = [one["processor s"] for one in by_name.values()] + [row["start, imports and collection, processor s"]]
    assert row["processor s"] == pytest.approx(sum(parts_s), abs=0.1)


def test_what_fails_is_not_measured(tmp_path: Path) -> None:
    red = tmp_path / "test_red.py"
    red.write_text("def test_red(): assert 1 == 2\n")
    with pytest.raises(RuntimeError, match="assert 1 == 2"):
        measured([str(red)])


def test_a_line_says_the_newest_measurement_of_the_files_of_today(tmp_path: Path) -> None:
    assert added("bus", tmp_path) is None
    report = report_of("bus", NAME, tmp_path)

    def row(seconds: float) -> dict[str, object]:
        taken = {"tests/a.py": {"tests": 2, "skipped": 0, "processor s": seconds - 1}}
        return {"files": taken, "tests": 2, "processor s": seconds, "start, imports and collection, processor s": 1.0}

    for name, seconds in (("3 files in one process", 9.0), (case("bus"), 8.0), (case("bus"), 7.0)):
        report.append({"case": name, "rows": [row(seconds)]})
    assert added("bus", tmp_path) == (
        "7 s of processor time, so 3.5 s on 2 cores: 2 tests in 1 files, "
        "1 s of it start, imports and collection; most: tests/a.py 6 s"
    )
