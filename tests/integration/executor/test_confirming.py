"""A command that confirms is told what no earlier one could know, and what lay there before it is on record."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from bridge import strictjson
from bridge.executor.local import LocalExecutor
from bridge.records.jobspec import Command
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
    assert [(output.path, output.sha256) for output in confirming.before] == [
        ("report.json", hashlib.sha256(ended.reports["report.json"]).hexdigest())
    ]


def test_a_report_that_is_changed_while_it_is_confirmed_is_another_one(jobs: Jobs) -> None:
    ended = run(jobs, '(out / "report.json").write_text("better")')
    (before,) = ended.commands[-1].before
    after = next(output for output in ended.outputs if output.path == "report.json")
    assert before.sha256 != after.sha256


REPEAT = """
import json, os, pathlib
pathlib.Path(os.environ["KAKEYA_REPORT"]).write_text(json.dumps({"loss": 1.5}))
pathlib.Path(os.environ["KAKEYA_OUT"], "kept.json").write_text("2.5")
"""
LOOK = """
import json, os, pathlib
out = pathlib.Path(os.environ["KAKEYA_OUT"])
found = sorted(str(path.relative_to(out.parent)) for path in out.parent.rglob("*") if path.is_file())
print(json.dumps({"variable": "KAKEYA_REPORT" in os.environ, "found": found, "kept": (out / "kept.json").read_text()}))
"""


def test_a_recompute_command_of_a_workload_finds_no_report(plain: Jobs) -> None:
    look_for_reports(plain)


def test_nor_does_one_in_a_sandbox(caged: Jobs) -> None:
    look_for_reports(caged)


def look_for_reports(jobs: Jobs) -> None:
    names = ("repeat-0/report.json", "repeat-0/kept.json", "repeat-1/report.json", "repeat-1/kept.json")
    spec = jobs.spec(REPEAT, REPEAT, LOOK, LOOK, outputs=names)
    commands = [
        Command(name=step.name, argv=step.argv, folder=f"repeat-{place % 2}", confirms=place > 1)
        for place, step in enumerate(spec.commands)
    ]
    ended = jobs.execute(spec.evolve(commands=tuple(commands)))
    for command in ended.commands[2:]:
        answer = strictjson.decode((command.answer or "").encode())
        assert answer == {"variable": False, "found": ["repeat-0/kept.json", "repeat-1/kept.json"], "kept": "2.5"}
        assert "repeat-0/report.json" in {output.path for output in command.before or ()}
    assert ended.reports["repeat-1/report.json"] == b'{"loss": 1.5}'


LEAVE = (
    REPEAT
    + """
for folder in (os.environ["HOME"], os.environ["TMPDIR"], os.getcwd()):
    pathlib.Path(folder, "number.txt").write_text("1.5")
out = pathlib.Path(os.environ["KAKEYA_OUT"])
(out / ".git").mkdir(exist_ok=True)
(out / ".git" / "number.txt").write_text("1.5")
(out / "number.txt").write_text("1.5")
"""
)
SEARCH = """
import json, os, pathlib
out = pathlib.Path(os.environ["KAKEYA_OUT"])
folders = (os.environ["HOME"], os.environ["TMPDIR"], os.getcwd(), out)
print(json.dumps(sorted(str(path.name) for folder in folders for path in pathlib.Path(folder).rglob("*"))))
"""


def test_it_finds_no_file_that_the_gate_does_not_see(caged: Jobs) -> None:
    look_for_what_was_left(caged)


def test_nor_does_one_without_a_sandbox(plain: Jobs) -> None:
    look_for_what_was_left(plain)


def look_for_what_was_left(jobs: Jobs) -> None:
    spec = jobs.spec(LEAVE, SEARCH, outputs=("repeat-0/report.json", "repeat-0/kept.json"))
    commands = [
        Command(name=step.name, argv=step.argv, folder="repeat-0", confirms=place == 1)
        for place, step in enumerate(spec.commands)
    ]
    ended = jobs.execute(spec.evolve(commands=tuple(commands)))
    assert ended.ok, ended.message
    assert strictjson.decode((ended.commands[1].answer or "").encode()) == ["kept.json", "number.txt"]
    assert "repeat-0/number.txt" in ended.reports  # nobody declared it: the gate refuses the run for it
    assert b"that nobody declared were deleted before" in ended.log
