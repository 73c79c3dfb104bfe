"""The folders of a workload's repeats: what a command puts in their place leads the supervisor nowhere else."""

from __future__ import annotations

import stat

import pytest

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
