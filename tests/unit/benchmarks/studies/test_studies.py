from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import signal
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import benchmarks.studies
from benchmarks.studies import __main__ as studies
from benchmarks.studies.registry import STUDIES
from benchmarks.studies.report import report_of
from benchmarks.studies.study import Study, rows_of


def lengths(measured: list[str], broken: set[str] = frozenset()) -> Study:  # type: ignore[assignment]
    """A study of how long words are."""

    def run(case: str) -> list[dict[str, object]]:
        measured.append(case)
        if case in broken:
            raise ValueError("no length today")
        return [{"length": len(case)}]

    return Study("lengths", "How long are words?", lambda: ["a", "bb", "ccc"], run, "seconds")


def test_every_case_is_one_line_of_the_report_with_what_it_was_measured_on(tmp_path: Path, capsys) -> None:
    assert studies.run([lengths([])], tmp_path) == 0
    lines = [json.loads(line) for line in (tmp_path / "lengths.jsonl").read_text().splitlines()]
    assert [(line["case"], line["of"], line["rows"]) for line in lines] == [
        ("a", 3, [{"length": 1}]), ("bb", 3, [{"length": 2}]), ("ccc", 3, [{"length": 3}])
    ]  # fmt: skip
    assert {"commit", "machine", "python", "ended", "seconds"} <= set(lines[0])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "lengths: How long are words? 0 of 3 done"
    assert printed[-1] == "  3 of 3: ccc"


def test_a_run_goes_on_where_the_last_one_was_killed(tmp_path: Path, capsys) -> None:
    studies.run([lengths([])], tmp_path)
    path = tmp_path / "lengths.jsonl"
    first, second, third = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + third + second[:20])  # killed while it wrote
    capsys.readouterr()
    measured: list[str] = []
    assert studies.run([lengths(measured)], tmp_path) == 0
    assert measured == ["bb"]
    assert capsys.readouterr().out.splitlines()[0].endswith("2 of 3 done")
    assert [entry["case"] for entry in report_of("lengths", tmp_path).entries()] == ["a", "ccc", "bb"]
    assert studies.run([lengths(measured)], tmp_path) == 0
    assert measured == ["bb"]


def test_no_more_cases_are_measured_than_are_asked_for(tmp_path: Path) -> None:
    measured: list[str] = []
    assert studies.run([lengths(measured), lengths(measured)], tmp_path, most=2) == 0
    assert measured == ["a", "bb"]
    assert studies.run([lengths(measured)], tmp_path, most=2) == 0
    assert measured == ["a", "bb", "ccc"]


def test_a_case_that_fails_stays_open_and_the_others_are_measured(tmp_path: Path, capsys) -> None:
    assert studies.run([lengths([], {"bb"})], tmp_path) == 1
    assert "failed: bb: no length today" in capsys.readouterr().err
    assert report_of("lengths", tmp_path).done(["a", "bb", "ccc"]) == ["a", "ccc"]


def test_a_summary_says_what_the_whole_report_comes_to(tmp_path: Path, capsys) -> None:
    def summary(entries) -> list[str]:
        return [f"{sum(row['length'] for row in rows_of(entries))} letters"]

    assert studies.run([replace(lengths([]), summary=summary)], tmp_path, most=2) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "  3 letters"
    assert studies.run([replace(lengths([]), summary=summary)], tmp_path) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "  6 letters"


def test_two_runs_never_measure_at_once(tmp_path: Path) -> None:
    def enter() -> None:  # the lock is the open file's, so that this process is kept out as another is
        with studies.alone(tmp_path / "lock"):
            pass

    with studies.alone(tmp_path / "lock"), pytest.raises(SystemExit, match="error: other studies run on this machine"):
        enter()
    enter()


def test_without_a_name_every_study_is_listed_with_its_question_and_how_long_it_took(capsys) -> None:
    assert studies.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(STUDIES)
    assert "simulation: How often does the rule over launches err, and how often does it see? (ten minutes)" in lines


def test_a_study_that_there_is_not_is_one_line_that_names_those_there_are(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        studies.main(["no-such-study"])
    assert ended.value.code == 2
    assert f"no study no-such-study; there are {', '.join(STUDIES)}" in capsys.readouterr().err


def test_a_digest_is_what_the_report_comes_to_and_where_it_was_measured(tmp_path: Path) -> None:
    study = replace(lengths([]), summary=lambda entries: [f"{len(entries)} words"])
    with pytest.raises(SystemExit, match="has no cases, or lengths has no summary; measure it first"):
        studies.keep_digest(study, tmp_path)
    studies.run([study], tmp_path, most=2)
    digest = json.loads(studies.keep_digest(study, tmp_path).read_text())
    assert (digest["summary"], digest["cases"], digest["of"]) == (["2 words"], 2, 3)
    assert {entry["commit"] for entry in report_of("lengths", tmp_path).entries()} == set(digest["commits"])


def test_every_module_of_a_study_can_be_imported() -> None:
    modules = pkgutil.walk_packages(benchmarks.studies.__path__, "benchmarks.studies.")
    assert all(import_module(module.name) for module in modules if not module.name.endswith("__main__"))


def test_a_study_that_is_told_to_end_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def run(case: str) -> list[dict[str, object]]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("nobody ended it")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # a second one while it cleans up
            ended.append(case)

    monkeypatch.setitem(STUDIES, "lengths", Study("lengths", "How long?", lambda: ["a", "bb"], run, "seconds"))
    monkeypatch.setattr(studies, "alone", contextlib.nullcontext)
    monkeypatch.setattr(studies, "report_of", lambda _study, _folder: report_of("lengths", tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended_by:
            studies.main(["lengths"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (ended_by.value.code, ended) == (128 + signal.SIGTERM, ["a"])
    assert report_of("lengths", tmp_path).entries() == []
