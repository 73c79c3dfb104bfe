"""What a listing of Slurm says of our jobs, whatever other users call theirs: a program that prints as squeue does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError
from bridge.executor.engines.slurm import SlurmEngine, SlurmOptions
from bridge.system.clock import SystemClock

Job = dict[str, object]
_SQUEUE = """#!/usr/bin/env -S python3 -IS
import json, sys
options = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
for job in json.load(open({file!r})):
    if options.get("user", job["uid"]) == job["uid"] and options.get("name", job["name"]) == job["name"]:
        line = options["format"]
        for letter, key in (("%i", "id"), ("%U", "uid"), ("%T", "state"), ("%r", "reason"), ("%j", "name")):
            line = line.replace(letter, job[key])
        print(line)
"""
OURS, OTHERS = str(os.geteuid()), str(os.geteuid() + 1)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SlurmEngine]:
    """Return an engine over a squeue that lists these jobs."""

    def listing(*jobs: Job) -> SlurmEngine:
        file = tmp_path / "jobs.json"
        file.write_text(json.dumps(jobs))
        squeue = tmp_path / "squeue"
        squeue.write_text(_SQUEUE.format(file=str(file)))
        squeue.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return SlurmEngine(SlurmOptions(), SystemClock())

    return listing


def job(number: str, name: str, state: str, *, uid: str = OURS, reason: str = "None") -> Job:
    """Return a job as the table of the fake has it."""
    return {"id": number, "name": name, "state": state, "uid": uid, "reason": reason}


def test_a_name_with_a_line_of_its_own_forges_no_job(slurm: Callable[..., SlurmEngine]) -> None:
    forged = f"x\n8|{OURS}|COMPLETED|None|kakeya-1\n8|COMPLETED|None"
    engine = slurm(job("8", "kakeya-1", "PENDING", reason="Resources"), job("9", forged, "RUNNING", uid=OTHERS))
    waiting = engine.look("8")
    assert waiting is not None
    assert (waiting.state, waiting.reason, waiting.place) == ("queued", "Resources", (1, 1))
    assert engine.find("kakeya-1") == waiting


def test_a_job_of_another_user_is_not_ours_whatever_it_is_called(slurm: Callable[..., SlurmEngine]) -> None:
    engine = slurm(job("7", "kakeya-1", "RUNNING", uid=OTHERS))
    assert engine.find("kakeya-1") is None


def test_the_newest_job_of_a_name_is_the_one(slurm: Callable[..., SlurmEngine]) -> None:
    engine = slurm(job("7", "kakeya-1", "CANCELLED"), job("8", "kakeya-1", "RUNNING"))
    newest = engine.find("kakeya-1")
    assert newest is not None
    assert (newest.id, newest.state) == ("8", "running")


def test_what_waits_has_its_place_among_all_that_wait(slurm: Callable[..., SlurmEngine]) -> None:
    engine = slurm(
        job("5", "other", "PENDING", uid=OTHERS, reason="Priority"),
        job("6", "other", "RUNNING", uid=OTHERS),
        job("7", "kakeya-1", "PENDING", reason="Dependency"),
    )
    waiting = engine.look("7")
    assert waiting is not None
    assert waiting.place == (2, 2)


def test_a_machine_without_slurm_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="there is no squeue here"):
        SlurmEngine(SlurmOptions(), SystemClock()).find("kakeya-1")
