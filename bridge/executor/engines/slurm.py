"""Slurm as an engine: sbatch, squeue, scancel and scontrol, through the process door.

Knows Slurm's words and options (22.05 and later), and nothing about runs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from bridge.errors import InfrastructureError
from bridge.executor.engines.interface import EngineJob, JobNeeds
from bridge.system.clock import Clock
from bridge.system.process import Completed, run

_CALL_S: Final = 30.0
_PLACES_S: Final = 60.0  # one listing of what waits serves all runs for so long
_COLUMNS: Final = 3  # of a listing: number, partition, reason
_OUTPUT_MAX_BYTES: Final = 16 << 20
_RUNNING: Final = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"})
_QUEUED: Final = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "RESIZING", "REVOKED"}
)
_KNOWN: Final = ("SLURM_CONF", "PATH", "HOME")  # of our environment, what Slurm's commands see
_FOR_GOOD: Final = frozenset(
    {
        "PartitionTimeLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit", "BadConstraints",
        "InvalidAccount", "InvalidQOS", "AccountNotAllowed", "QOSNotAllowed", "DependencyNeverSatisfied",
        "AssocMaxCpuPerJobLimit", "AssocMaxMemPerJob", "AssocMaxGRESPerJob", "AssocMaxNodePerJobLimit",
        "QOSMaxCpuPerJobLimit", "QOSMaxMemoryPerJob", "QOSMaxGRESPerJob", "QOSMaxNodePerJobLimit",
    }
)  # fmt: skip
"""Reasons of squeue(1) that are about what one job asks for; no other job's end changes them.

`PartitionNodeLimit` and `PartitionConfig` are not among them: they may also mean that nodes are down.
"""
_NOT_ALLOWED: Final = re.compile(r"(Job's (account|QOS)|User's group)\b.* not (known|permitted)\b")
"""What stands in place of a reason where a partition names who may use it; scontrol writes ``_`` for a space."""
_SHOWN: Final = re.compile(r" JobState=(\S+) Reason=(\S+) Dependency=")
_PARTITION: Final = re.compile(r" in partition (\S+)")  # `Job 1 to start at … on nodes n1 in partition cpu`
_MAX_TIME: Final = re.compile(r" MaxTime=(?:(\d+)-)?(\d+):(\d+):(\d+)")  # not of UNLIMITED
_TAKEN: Final = re.compile(rb"ProctrackType\s*=\s*(\S+)")


@dataclass(frozen=True)
class SlurmOptions:
    """What of a job the owner decides; None leaves it to Slurm.

    Attributes:
        partition, account, qos: where it is queued and who is charged.
        cpus: processors of a run.
        memory, gres: as Slurm writes them, such as ``8G`` and ``gpu:1``.
        constraint: a feature that its node must have.
        modules: environment modules that are loaded before the supervisor starts.
        sbatch: further options of sbatch, each a word of its own.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    cpus: int | None = None
    memory: str | None = None
    gres: str | None = None
    constraint: str | None = None
    modules: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """Return them as options of sbatch."""
        given = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "cpus-per-task": self.cpus,
            "mem": self.memory,
            "gres": self.gres,
            "constraint": self.constraint,
        }
        return [*(f"--{name}={value}" for name, value in given.items() if value is not None), *self.sbatch]

    def script(self, argv: Sequence[str]) -> bytes:
        """Return the batch script of a command; modules want the login shell that defines `module`."""
        if not self.modules:
            return f"#!/bin/sh\nexec {shlex.join(argv)}\n".encode()
        return f"#!/bin/bash -l\nmodule load {shlex.join(self.modules)} || exit 1\nexec {shlex.join(argv)}\n".encode()


def combine(common: SlurmOptions, by_label: Mapping[str, SlurmOptions], labels: Sequence[str]) -> SlurmOptions:
    """Return the options of a job with these labels: a label's own count in place of the common ones.

    Features of several labels are all asked for; modules and further options of labels come after the common ones.

    Raises:
        InfrastructureError: two labels want different values of one option.
    """
    meanings = [(label, by_label[label]) for label in labels if label in by_label]
    chosen: dict[str, tuple[str, Any]] = {}
    for label, options in meanings:
        for name in ("partition", "account", "qos", "cpus", "memory", "gres"):
            value = getattr(options, name)
            if value is None:
                continue
            other, earlier = chosen.setdefault(name, (label, value))
            if earlier != value:
                raise InfrastructureError(
                    f"the labels {other} and {label} mean two values of {name}: {earlier} and {value}",
                    remedy="ask for one of them; [executor.jobs] of policy.toml says what each means",
                )
    features = dict.fromkeys(options.constraint for _, options in meanings if options.constraint is not None)
    return replace(
        common,
        **{name: value for name, (_, value) in chosen.items()},
        constraint="&".join(features) or common.constraint,
        modules=(*common.modules, *(module for _, options in meanings for module in options.modules)),
        sbatch=(*common.sbatch, *(word for _, options in meanings for word in options.sbatch)),
    )


@dataclass(frozen=True)
class _Waiting:
    partition: str
    reason: str


class SlurmEngine:
    """Implements `bridge.executor.engines.interface.ClusterEngine`; one for all runs of a runner.

    Args:
        options: what the owner decides about every job.
        clock: says how old the listing is.
        by_label: what a label of a run changes about its job.
    """

    name = "slurm"
    ends_descendants = False

    def __init__(self, options: SlurmOptions, clock: Clock, by_label: Mapping[str, SlurmOptions] | None = None) -> None:
        self._options, self._clock, self._by_label = options, clock, by_label or {}
        self._lock = threading.Lock()
        self._listed_s = float("-inf")
        self._waiting: dict[str, _Waiting] = {}

    def check(self) -> str | None:
        """Return why a job that leaves processes behind would keep them; None where Slurm holds jobs in a cgroup.

        Raises:
            InfrastructureError: Slurm does not answer.
        """
        match = _TAKEN.search(self._call(["scontrol", "show", "config"]).stdout)
        how = "unknown" if match is None else match[1].decode("ascii", "replace")
        if how == "proctrack/cgroup":
            return None
        return f"Slurm finds the processes of a job by {how}, not proctrack/cgroup: only a sandbox ends what leaves it"

    def open_to_runs(self) -> str | None:
        """Return nothing: Slurm asks munge who somebody is, whose socket no sandbox shows."""
        return None

    def never(self, needs: JobNeeds) -> str | None:
        """Return why no such job would ever begin; see the interface.

        ``sbatch --test-only`` looks at everything but the time, which waits as PartitionTimeLimit where the cluster
        does not enforce limits at submission.
        """
        try:
            options = combine(self._options, self._by_label, needs.labels)
        except InfrastructureError as error:
            return error.message
        tried = self._tried(["sbatch", "--test-only", "--chdir=/", *_asked(options, needs)], options.script(["true"]))
        if tried.timed_out or b"Unable to contact" in tried.stderr:
            raise _failed(tried)
        if not tried.ok:
            return _failed(tried).message
        partition = _PARTITION.search(tried.stderr.decode("utf-8", "replace"))
        if partition is None:
            return None
        shown = self._call(["scontrol", "--oneliner", "show", "partition", partition[1]])
        limit = _MAX_TIME.search(shown.stdout.decode("utf-8", "replace"))
        if limit is None:
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in limit.groups())
        most = days * 1440 + hours * 60 + minutes + seconds / 60
        if _minutes(needs) <= most:
            return None
        return f"it asks for {_minutes(needs)} minutes, and partition {partition[1]} gives {most:.0f}"

    def submit(self, name: str, argv: Sequence[str], output: Path, needs: JobNeeds) -> str:
        """Queue a command; see the interface. Nothing of our environment goes along."""
        if os.geteuid() == 0:
            raise InfrastructureError(
                "a runner that is root submits nothing: its jobs would be root on the nodes",
                remedy="run it as a user of its own, the same on every node",
            )
        options = combine(self._options, self._by_label, needs.labels)
        words = [
            "sbatch", "--parsable", f"--job-name={name}", "--no-requeue", "--chdir=/", f"--output={output}",
            "--open-mode=append", "--export=PATH=/usr/bin:/bin", *_asked(options, needs),
        ]  # fmt: skip
        done = self._call(words, options.script(argv))
        job = done.stdout.decode("ascii", "replace").strip().partition(";")[0]
        if not job.isdigit():
            raise InfrastructureError(f"sbatch answered {job[:80]!r} instead of a job's number")
        with self._lock:
            self._listed_s = float("-inf")  # so that its place is known at the first look
        return job

    def find(self, name: str) -> EngineJob | None:
        """Return the job of a name; see the interface. Anybody may give a job any name: only this user's count."""
        ours = ["--noheader", "--states=all", f"--user={os.geteuid()}", f"--name={name}", "--format=%i"]
        ids = self._call(["squeue", *ours]).stdout.decode("ascii", "replace").split()
        return self.look(ids[-1]) if ids else None

    def look(self, job: str) -> EngineJob | None:
        """Return a job as it stands; see the interface.

        Once a minute all that waits is listed, for the places of all runs; else the job alone is asked for.
        """
        with self._lock:
            if self._clock.steady_s() - self._listed_s > _PLACES_S:
                self._waiting, self._listed_s = self._list(), self._clock.steady_s()
                if job in self._waiting:
                    return self._queued(job, "PENDING", self._waiting[job].reason)
        done = self._tried(["scontrol", "--oneliner", "show", "job", job])
        if not done.ok and b"Invalid job id" in done.stderr:
            return None
        if not done.ok:
            raise _failed(done)
        # What stands before it is a name that `submit` gave, and a comment comes behind it.
        shown = _SHOWN.search(done.stdout.decode("utf-8", "replace"))
        if shown is None:
            raise InfrastructureError(f"scontrol says no state of job {job}")
        word, reason = shown.groups()
        if _state(word) != "queued":
            return EngineJob(job, _state(word), word, _reason(reason))
        with self._lock:
            return self._queued(job, word, reason)

    def _queued(self, job: str, word: str, reason: str) -> EngineJob:
        """Return a job that waits, with its place among those of its partition, in the order in which they start."""
        place = None
        if job in self._waiting:
            partition = self._waiting[job].partition
            order = [number for number, each in self._waiting.items() if each.partition == partition]
            place = (order.index(job) + 1, len(order))
        return EngineJob(job, "queued", word, _reason(reason), place, for_good=_is_for_good(reason))

    def ask_to_end(self, job: str) -> None:
        """Send TERM to the job's own process; see the interface."""
        self._cancel("--signal=TERM", "--batch", job)

    def end(self, job: str, *, queued_only: bool = False) -> None:
        """Cancel a job; see the interface."""
        self._cancel(*(["--state=PENDING"] if queued_only else []), job)

    def _cancel(self, *words: str) -> None:
        done = self._tried(["scancel", *words])
        if not done.ok and b"Invalid job id" not in done.stderr and b"already completed" not in done.stderr:
            raise _failed(done)

    def _list(self) -> dict[str, _Waiting]:
        """Return the jobs of the partitions that wait, as far as Slurm shows them, the next first.

        Raises:
            InfrastructureError: Slurm does not answer.
        """
        partitions = dict.fromkeys(each.partition for each in (self._options, *self._by_label.values()))
        named = [partition for partition in partitions if partition is not None]
        where = [f"--partition={','.join(named)}"] if named and self._options.partition is not None else []
        done = self._call(["squeue", "--noheader", "--states=PENDING", "--sort=-p,i", "--format=%i|%P|%r", *where])
        if done.truncated:
            raise InfrastructureError(f"squeue lists more than {_OUTPUT_MAX_BYTES >> 20} MiB", remedy="set a partition")
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        rows = (line.split("|", 2) for line in lines)
        return {row[0]: _Waiting(row[1], row[2]) for row in rows if len(row) == _COLUMNS}

    def _call(self, argv: Sequence[str], data: bytes | None = None) -> Completed:
        done = self._tried(argv, data)
        if not done.ok:
            raise _failed(done)
        return done

    def _tried(self, argv: Sequence[str], data: bytes | None = None) -> Completed:
        environment = {name: os.environ[name] for name in _KNOWN if name in os.environ}
        program = shutil.which(argv[0])
        if program is None:
            raise InfrastructureError(
                f"there is no {argv[0]} here", remedy="install Slurm's commands on the runner's machine"
            )
        return run(
            [program, *argv[1:]], env=environment, timeout_s=_CALL_S, input=data, max_output_bytes=_OUTPUT_MAX_BYTES
        )


def _minutes(needs: JobNeeds) -> int:
    return int(needs.wall_s // 60) + 1


def _asked(options: SlurmOptions, needs: JobNeeds) -> list[str]:
    """Return what of a job Slurm decides by: time, tasks and the owner's options."""
    return [f"--time={_minutes(needs)}", "--ntasks=1", *options.words()]


def _failed(done: Completed) -> InfrastructureError:
    """Return the error of a call, in Slurm's own words: what a job asked for and no node has, for instance."""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    silent = "did not answer in time" if done.timed_out else f"exit code {done.exit_code}"
    why = lines[-1] if lines else silent  # sbatch says `temporarily unable to accept job` while it tries again
    name = Path(done.argv[0]).name
    return InfrastructureError(f"{name}: {why.removeprefix(f'{name}: error: ')}", remedy="sinfo; kakeya-runner doctor")


def _state(word: str) -> Literal["queued", "running", "ended"]:
    return "running" if word in _RUNNING else "queued" if word in _QUEUED else "ended"


def _is_for_good(reason: str) -> bool:
    return reason in _FOR_GOOD or _NOT_ALLOWED.match(reason.replace("_", " ")) is not None


def _reason(text: str) -> str:
    return "" if text in {"None", "(null)"} else text.replace("_", " ")
