"""A command that confirms is told what no earlier one could know, and what lay there before it is on record."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bridge.executor.local import LocalExecutor
from bridge.records import Command
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs

WRITE = """
import os, pathlib
pathlib.Path(os.environ["KAKEYA_OUT"], "report.json").write_text(os.environ["KAKEYA_NONCE"])
"""
CONFIRM = """
import os, pathlib
out = pathlib.Path(os.environ["KAKEYA_OUT"])
(out / "recompute.json").write_text((out / "report.json").read_text())
{more}
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(LocalExecutor(SystemClock()), tmp_path)


def run(jobs: Jobs, more: str = ""):
    spec = jobs.spec(WRITE, CONFIRM.format(more=more), outputs=("report.json", "recompute.json"))
    first, last = spec.commands
    return jobs.execute(spec.evolve(commands=(first, Command(name=last.name, argv=last.argv, confirms=True))))


def test_every_command_of_a_run_is_told_one_nonce_that_is_on_record(jobs: Jobs) -> None:
    first, second = run(jobs), run(jobs)
    assert first.reports["report.json"].decode() == first.reports["recompute.json"].decode() == first.nonce
    assert first.nonce != second.nonce


def test_what_lay_there_before_is_on_record_by_digest(jobs: Jobs) -> None:
    ended = run(jobs)
    writing, confirming = ended.commands
    assert writing.before is None
    assert [(one.path, one.sha256) for one in confirming.before] == [
        ("report.json", hashlib.sha256(ended.reports["report.json"]).hexdigest())
    ]


def test_a_report_that_is_changed_while_it_is_confirmed_is_another_one(jobs: Jobs) -> None:
    ended = run(jobs, '(out / "report.json").write_text("better")')
    (before,) = ended.commands[-1].before
    after = next(one for one in ended.outputs if one.path == "report.json")
    assert before.sha256 != after.sha256
