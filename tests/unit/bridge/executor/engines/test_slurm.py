"""What Slurm says of our jobs, whatever other users call theirs: programs that print as squeue and scontrol do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.errors import InfrastructureError
from bridge.executor.engines.interface import JobNeeds
from bridge.executor.engines.slurm import SlurmEngine, SlurmOptions, combine
from bridge.runner.maintenance.queue_checks import check_queue
from bridge.system.clock import SystemClock

Job = dict[str, object]
_COMMAND = """#!/usr/bin/env -S python3 -IS
import json, pathlib, sys
program, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
with open({calls!r}, "a") as calls:
    print(program, *words, file=calls)
jobs = json.load(open({file!r}))
if program == "scontrol":
    asked = [job for job in jobs if job["id"] == words[-1]]
    if not asked:
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    for job in asked:
        job["reason"] = job["reason"].replace(" ", "_")
        print("JobId=%(id)s JobName=%(name)s UserId=x(%(uid)s)" % job, end=" ")
        print("JobState=%(state)s Reason=%(reason)s Dependency=(null)" % job)
        sys.exit()
options = dict(word.removeprefix("--").partition("=")[::2] for word in words)
for job in jobs:
    states = options["states"] == "all" or job["state"] == options["states"]
    if states and options.get("user", job["uid"]) == job["uid"] and options.get("name", job["name"]) == job["name"]:
        print(options["format"].replace("%i", job["id"]).replace("%r", job["reason"]).replace("%P", job["partition"]))
"""
OURS, OTHERS = str(os.geteuid()), str(os.geteuid() + 1)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SlurmEngine]:
    """Return an engine over commands that know these jobs."""

    def listing(*jobs: Job) -> SlurmEngine:
        file = tmp_path / "jobs.json"
        file.write_text(json.dumps(jobs))
        for name in ("squeue", "scontrol"):
            program = tmp_path / name
            program.write_text(_COMMAND.format(file=str(file), calls=str(tmp_path / "calls")))
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return SlurmEngine(SlurmOptions(), SystemClock())

    return listing


def job(number: str, name: str, state: str, *, uid: str = OURS, reason: str = "None", partition: str = "cpu") -> Job:
    """Return a job as the table of the fake has it."""
    return {"id": number, "name": name, "state": state, "uid": uid, "reason": reason, "partition": partition}


def test_a_name_of_somebody_else_forges_no_job(slurm: Callable[..., SlurmEngine]) -> None:
    forged = "x JobState=COMPLETED Reason=None Dependency=(null)"
    engine = slurm(job("8", "kakeya-1", "PENDING", reason="Resources"), job("9", forged, "RUNNING", uid=OTHERS))
    waiting = engine.look("8")
    assert waiting is not None
    assert (waiting.state, waiting.reason, waiting.place, waiting.for_good) == ("queued", "Resources", (1, 1), False)
    assert engine.find("kakeya-1") == waiting
    assert engine.look("10") is None


@pytest.mark.parametrize(
    "reason",
    [
        "PartitionTimeLimit",
        "QOSMaxWallDurationPerJobLimit",
        "BadConstraints",
        "Job's account not known, so it can't use this partition (closed allows staff)",
        "Job's QOS (low) not permitted to use this partition (closed allows high)",
    ],
)
def test_a_reason_that_no_waiting_changes_is_told_from_others(slurm: Callable[..., SlurmEngine], reason: str) -> None:
    engine = slurm(job("8", "kakeya-1", "PENDING", reason=reason))
    for _ in range(2):  # from the listing, then of the job alone, where Slurm writes no spaces
        waiting = engine.look("8")
        assert waiting is not None
        assert (waiting.reason, waiting.for_good) == (reason, True)


def test_a_job_is_looked_at_alone_and_what_waits_is_listed_once_a_minute(
    slurm: Callable[..., SlurmEngine], tmp_path: Path
) -> None:
    engine = slurm(job("8", "kakeya-1", "PENDING"), job("9", "kakeya-2", "PENDING"), job("7", "kakeya-3", "RUNNING"))
    looks = [engine.look(number) for number in ("8", "9", "7", "8")]
    assert [look.place for look in looks if look is not None] == [(1, 2), (2, 2), None, (1, 2)]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [line.split()[0] for line in calls].count("squeue") == 1
    assert [line.split()[-1] for line in calls if line.startswith("scontrol")] == ["9", "7", "8"]


def test_a_job_of_another_user_is_not_ours_whatever_it_is_called(slurm: Callable[..., SlurmEngine]) -> None:
    engine = slurm(job("7", "kakeya-1", "RUNNING", uid=OTHERS))
    assert engine.find("kakeya-1") is None


def test_the_newest_job_of_a_name_is_the_one(slurm: Callable[..., SlurmEngine]) -> None:
    engine = slurm(job("7", "kakeya-1", "CANCELLED"), job("8", "kakeya-1", "RUNNING"))
    newest = engine.find("kakeya-1")
    assert newest is not None
    assert (newest.id, newest.state) == ("8", "running")


def test_what_waits_has_its_place_among_all_that_wait_in_its_partition(slurm: Callable[..., SlurmEngine]) -> None:
    engine = slurm(
        job("5", "other", "PENDING", uid=OTHERS, reason="Priority"),
        job("6", "other", "RUNNING", uid=OTHERS),
        job("4", "other", "PENDING", uid=OTHERS, partition="gpu"),
        job("7", "kakeya-1", "PENDING", reason="Dependency"),
    )
    waiting = engine.look("7")
    assert waiting is not None
    assert waiting.place == (2, 2)


def test_a_machine_without_slurm_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="there is no squeue here"):
        SlurmEngine(SlurmOptions(), SystemClock()).find("kakeya-1")


GPU = SlurmOptions(partition="gpu", gres="gpu:a100:1", constraint="a100", modules=("cuda/12.4",))
BIG = SlurmOptions(partition="h100", gres="gpu:h100:4", sbatch=("--exclusive",))


def test_a_label_changes_its_job_and_no_other() -> None:
    common, by_label = SlurmOptions(partition="cpu", cpus=2, modules=("python/3.12",)), {"cuda": GPU, "big": BIG}
    assert combine(common, by_label, ()) == common
    assert combine(common, by_label, ("desk",)) == common
    assert combine(common, by_label, ("cuda",)).words() == [
        "--partition=gpu", "--cpus-per-task=2", "--gres=gpu:a100:1", "--constraint=a100",
    ]  # fmt: skip
    assert combine(common, by_label, ("big",)).words()[-2:] == ["--gres=gpu:h100:4", "--exclusive"]
    script = combine(common, by_label, ("cuda",)).script(["python", "-m", "x y"]).decode()
    assert script.splitlines() == [
        "#!/bin/bash -l", "module load python/3.12 cuda/12.4 || exit 1", "exec python -m 'x y'",
    ]  # fmt: skip


def test_two_labels_that_want_two_values_are_named_before_anything_is_submitted() -> None:
    with pytest.raises(InfrastructureError, match="cuda and big mean two values of partition: gpu and h100"):
        combine(SlurmOptions(), {"cuda": GPU, "big": BIG}, ("cuda", "big"))
    both = {"cuda": SlurmOptions(constraint="a100"), "fast": SlurmOptions(constraint="nvme")}
    assert combine(SlurmOptions(), both, ("cuda", "fast")).words() == ["--constraint=a100&nvme"]


def test_what_a_label_means_reaches_sbatch(
    slurm: Callable[..., SlurmEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # root submits nothing
    program = tmp_path / "sbatch"
    program.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\ncat >{tmp_path}/script\necho 7\n')
    program.chmod(0o755)
    engine = SlurmEngine(SlurmOptions(partition="cpu"), SystemClock(), {"cuda": GPU})
    assert engine.submit("kakeya-1", ["true"], tmp_path / "out", JobNeeds(("cuda",), 60.0)) == "7"
    words = (tmp_path / "words").read_text().split()
    assert {"--partition=gpu", "--gres=gpu:a100:1", "--constraint=a100"} <= set(words)
    assert "module load cuda/12.4" in (tmp_path / "script").read_text()


_SBATCH = """#!/usr/bin/env -S python3 -IS
import sys
options = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
assert "test-only" in options, sys.argv
if "gres" in options:
    sys.exit("sbatch: error: Invalid generic resource (gres) specification")
partition = options.get("partition", "cpu")
print("sbatch: Job 7 to start at 2030-01-01T00:00:00 using 1 processors on nodes n1 in partition", partition,
      file=sys.stderr)
"""
_SCONTROL = """#!/bin/sh
case $4 in
short) echo "PartitionName=short AllowGroups=ALL Default=NO MaxNodes=UNLIMITED MaxTime=00:05:00 MinNodes=0" ;;
cpu) echo "PartitionName=cpu AllowGroups=ALL Default=YES MaxNodes=UNLIMITED MaxTime=1-00:00:00 MinNodes=0" ;;
*) echo "PartitionName=free AllowGroups=ALL Default=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0" ;;
esac
"""


def test_presets_that_a_partition_never_begins_are_named_before_anybody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("sbatch", _SBATCH), ("scontrol", _SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    by_label = {"short": SlurmOptions(partition="short"), "big": BIG, "free": SlurmOptions(partition="free")}
    engine = SlurmEngine(SlurmOptions(), SystemClock(), by_label)
    quick, day = JobNeeds((), 240.0), JobNeeds((), 86_400.0)
    checks = [(check.level, check.text) for check in check_queue(engine, {"quick": quick, "day": day}, tuple(by_label))]
    assert checks == [
        ("warn", "never begins day: it asks for 1441 minutes, and partition cpu gives 1440"),
        ("warn", "never begins day under the label short: it asks for 1441 minutes, and partition short gives 5"),
        ("warn", "never begins any preset under the label big: sbatch: Invalid generic resource (gres) specification"),
    ]  # fmt: skip
    (ok,) = check_queue(engine, {"quick": quick}, ("short", "free"))
    assert (ok.level, ok.text) == ("ok", "would begin every allowed preset, under every label (3 kinds of job tried)")


def test_a_controller_that_is_away_refuses_no_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    away = "#!/bin/sh\necho 'allocation failure: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"
    (tmp_path / "sbatch").write_text(away)
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    engine = SlurmEngine(SlurmOptions(), SystemClock(), {"cuda": GPU, "big": BIG})
    (check,) = check_queue(engine, {"quick": JobNeeds((), 240.0)}, ("big",))
    assert (check.level, "does not say what it would begin: sbatch: allocation failure: Unable" in check.text) == (
        "warn", True,
    )  # fmt: skip
    assert engine.never(JobNeeds(("cuda", "big"), 240.0)) == (
        "the labels cuda and big mean two values of partition: gpu and h100"
    )
