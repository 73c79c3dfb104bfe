"""The tutorials of own programs as they are printed, on real processes: their files, their commands, nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fakes.clone import Clone
from tests.support.printed_page import carry_out, failures, follow_page
from tests.support.workload_folder import INTERPRETER

pytestmark = pytest.mark.ci


def followed(page, tmp_path_factory):
    root = tmp_path_factory.mktemp("tutorial")
    root.chmod(0o755)
    # The first Python of the search path is what `workload new` names: one without packages, to be quick.
    clone = Clone(root, {"PATH": f"{Path(INTERPRETER).parent}:/usr/bin:/bin"})
    ran = follow_page(page, clone)
    clone.stop_runners()
    return clone, ran


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    return followed("ten-minutes-workload.md", tmp_path_factory)


@pytest.fixture(scope="module")
def commands_run(tutorial):
    return tutorial[1]


def test_it_takes_eight_commands_at_most_and_all_end_in_0(commands_run):
    assert 3 <= len(commands_run) <= 8
    assert failures(commands_run) == {}


def test_the_first_screen_has_the_number_with_unit_interval_and_whose_word_it_is(commands_run):
    first = next(ran.stdout for line, ran in commands_run if line.startswith("kakeya-mac run"))
    assert first.startswith("passed      quotable (smoke)")
    number = r"^final loss  0\.\d+ squared error \[0\.\d+, 0\.\d+\] 96\.9 %, lower is better, "
    assert re.search(
        rf"{number}reported by train\.py@[0-9a-f]{{12}} over 6 seeds   may be quoted$", first, re.MULTILINE
    )
    assert "reports/repeat-0/model.json" in first


def test_with_a_recompute_command_it_is_recomputed_and_may_be_quoted(commands_run):
    second = [ran.stdout for line, ran in commands_run if line.startswith("kakeya-mac run")][-1]
    assert "recomputed from what train.py@" in second
    assert "recomputed from what train.py@" in commands_run[-1][1].stdout


def test_every_output_says_with_which_parameters_it_was_measured(tutorial):
    clone, ran = tutorial
    assert "my-train" in ran[-1][1].stdout
    for words in (("status", "@last"), ("quote", "@last"), ("report", "@last"), ("report", "--history", "my-train")):
        assert "lr=0.1" in carry_out(clone, f"kakeya-mac {' '.join(words)}").stdout, words
    page = carry_out(clone, "kakeya-mac open --html @last").stdout.strip()
    assert "lr=0.1" in Path(page).read_text()
    assert "lr=0.1" in carry_out(clone, "kakeya-mac ls").stdout
    folder = carry_out(clone, "kakeya-mac open @last").stdout.strip()
    assert "lr=0.1" in Path(folder, "summary.md").read_text().replace("\\", "")


def test_files_and_pictures_alone_are_listed_and_shown(tmp_path_factory):
    clone, ran = followed("ten-minutes-files.md", tmp_path_factory)
    assert failures(ran) == {}
    screen = next(done.stdout for line, done in ran if line.startswith("kakeya-mac run"))
    assert screen.startswith("passed      measured (smoke)")
    assert re.search(
        r"^kept +reports/repeat-0/curve\.csv \(\d+ bytes\), reports/repeat-0/curve\.svg", screen, re.MULTILINE
    )
    (page,) = (clone.top / ".git" / "kakeya" / "runs").glob("*.html")
    text = page.read_text()
    assert '<img alt="repeat-0/curve.svg" src="data:image/svg+xml;base64,' in text
    assert "<polyline" not in text
