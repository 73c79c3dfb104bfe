"""What is typed in a bare root is what the pages print, and a failure's remedy is what its one line names."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks.studies.host import bare_roots
from benchmarks.studies.host.roots import STAND_IN
from benchmarks.studies.report import ROOT, report_of


def test_the_first_blocks_of_the_front_page_are_a_start_a_runner_and_who_asks_it():
    first, runner, requester, *_ = bare_roots.command_blocks((ROOT / "README.md").read_text("utf-8"))
    assert first[0].startswith("git clone ")
    assert [line.split()[1] for line in runner][-1] == "serve"
    assert requester[0].startswith("kakeya-mac init --bus ROUTE")


def test_a_block_with_a_line_of_output_is_none_of_commands():
    page = "```\nmake demo\nbus   embedded\n```\n```sh\n. .venv/bin/activate\nkakeya-mac ls\n```\n"
    assert bare_roots.command_blocks(page) == [[". .venv/bin/activate", "kakeya-mac ls"]]


@pytest.mark.parametrize(
    ("printed", "remedy"),
    [
        ("make demo: found none: sudo apt-get install python3-venv, then make demo again",
         "sudo apt-get install python3-venv"),
        ("make requester: found 3.9: install one (…), then make requester PYTHON=python3.13",
         f"make requester PYTHON={STAND_IN}"),
        ("make demo: found 2.31; what asks another machine runs here: make requester", "make requester"),
        ("  next: install git 2.36 or newer", "install git 2.36 or newer"),
        ("ResolutionImpossible: conflicting dependencies", None),
    ],
)  # fmt: skip
def test_the_remedy_is_what_the_line_names(printed, remedy):
    assert bare_roots.remedy_in(["something before", printed]) == remedy


def test_a_line_is_typed_again_after_its_remedy_and_no_remedy_is_done_twice(monkeypatch):
    class Shell:
        """A root in which `make demo` works once a package is there, and `make test` never."""

        installed = False

        def apt(self, _packages):
            self.installed = True

        def shell(self, lines, _user):
            works = self.installed and lines.endswith("make demo")
            return subprocess.CompletedProcess(
                lines, 0 if works else 2, "" if works else "sudo apt-get install tool, now"
            )

    typist = bare_roots.Typist(Shell())
    assert typist.type("first", "make demo")
    assert not typist.type("first", "make test")
    assert [[each["code"] for each in row["tries"]] for row in typist.rows] == [[0], [2, 0], [0], [2, 2]]


def test_in_the_committed_report_every_failure_names_its_remedy_and_the_next_try_works():
    entries = report_of(bare_roots.STUDY.name).entries()
    assert entries
    for entry in entries:
        for row in entry["rows"]:
            *before, last = row["tries"]
            assert all(bare_roots.remedy_in(each["said"]) for each in before)
            well = bare_roots.ends_well(row["typed"], last["code"])
            assert well or bare_roots.remedy_in(last["said"]) == "install git 2.36 or newer", (entry["case"], row)
