"""The folders of a workload's repeats: what a command puts in their place leads the supervisor nowhere else."""

from __future__ import annotations

import stat

import pytest

from bridge.executor.command.hidden_reports import remove_undeclared, reports_hidden
from bridge.executor.command.plan import make_folder
from bridge.executor.trial import make_directory
from bridge.records.jobspec import Command

SECOND = Command(name="second", argv=("/bin/true",), folder="repeat-1")


@pytest.fixture
def directory(tmp_path):
    return make_directory(tmp_path / "run")


@pytest.fixture
def outside(tmp_path):
    """A private folder of the host."""
    folder = tmp_path / "outside"
    folder.mkdir(mode=0o700)
    return folder


def test_a_link_in_the_place_of_the_next_repeats_folder_opens_no_folder_of_the_host(directory, outside):
    folder = directory.out / "repeat-1"
    folder.symlink_to(outside)
    make_folder(SECOND, directory)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700
    assert (folder.is_symlink(), folder.is_dir(), stat.S_IMODE(folder.stat().st_mode)) == (False, True, 0o777)


@pytest.mark.parametrize("target", ["repeat-1", "nowhere", None])
def test_nor_does_a_link_that_leads_nowhere_or_a_file_keep_it_from_being_made(directory, target):
    folder = directory.out / "repeat-1"
    if target is None:
        folder.write_text("a file")
    else:
        folder.symlink_to(target)
    make_folder(SECOND, directory)
    assert (folder.is_symlink(), folder.is_dir()) == (False, True)


def test_a_folder_that_is_there_keeps_what_is_in_it(directory):
    (directory.out / "repeat-1").mkdir(mode=0o700)
    (directory.out / "repeat-1" / "plot.png").write_text("x")
    make_folder(SECOND, directory)
    assert (directory.out / "repeat-1" / "plot.png").read_text() == "x"
    assert stat.S_IMODE((directory.out / "repeat-1").stat().st_mode) == 0o777


def report_in(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(text)
    return folder / "report.json"


def test_a_report_of_the_host_that_a_link_leads_to_is_not_taken_away(directory, outside):
    of_the_host = report_in(outside, "the host's")
    of_the_run = report_in(directory.out / "repeat-0", "the run's")
    (directory.out / "repeat-1").symlink_to(outside)
    (directory.out / "round").symlink_to("round")
    with reports_hidden(directory.out):
        assert (of_the_run.exists(), of_the_host.read_text()) == (False, "the host's")
    assert (of_the_run.read_text(), of_the_host.read_text()) == ("the run's", "the host's")


def test_a_report_is_not_put_back_through_a_link_that_came_meanwhile(directory, outside):
    report = report_in(directory.out / "repeat-0", "the run's")
    with reports_hidden(directory.out):
        report.parent.rename(directory.out / "away")
        report.parent.symlink_to(outside)
    assert list(outside.iterdir()) == []
    assert (report.read_text(), report.parent.is_symlink()) == ("the run's", False)


def test_what_stands_where_reports_are_put_back_and_aside_keeps_none_of_them_away(directory):
    first, second = (report_in(directory.out / f"repeat-{number}", str(number)) for number in range(2))
    aside = first.with_name("report.json.by-recompute")
    aside.mkdir()
    (aside / "x").write_text("x")
    with reports_hidden(directory.out):
        first.write_text("another one")
        second.parent.rmdir()
    assert (first.read_text(), aside.read_text(), second.read_text()) == ("0", "another one", "1")


def test_closed_folders_and_reports_are_hidden_all_the_same(directory):
    first, second = (report_in(directory.out / f"repeat-{number}", str(number)) for number in range(2))
    first.parent.chmod(0)
    second.chmod(0)
    with reports_hidden(directory.out):
        assert not first.exists()
        assert not second.exists()
    assert (first.read_text(), second.lstat().st_size) == ("0", 1)


def test_what_nobody_declared_goes_also_where_a_command_closed_or_removed_its_folders(directory, outside):
    (outside / "letter.txt").write_text("the host's")
    report = report_in(directory.out / "repeat-0", "the run's")
    for path in (directory.work / "x", report.with_name(".hidden")):
        path.write_text("x")
        path.parent.chmod(0o500)
    directory.tmp.rmdir()
    directory.home.rmdir()
    directory.home.symlink_to(outside)

    assert remove_undeclared(directory, {"repeat-0/report.json"}, work=True) == 2

    assert [path for path in directory.root.rglob("*") if not path.is_dir()] == [report]
    assert (directory.home.is_symlink(), directory.tmp.is_dir()) == (False, True)
    assert (outside / "letter.txt").read_text() == "the host's"
