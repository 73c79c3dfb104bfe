"""Runs on a real Slurm over a git remote: whole, hostile, many, of killed runners, and with faults around them.

Each case is a cluster of its own on this machine, whose daemons root starts; runner and jobs are a user without rights.
What is measured are counts and endings; the machine is anybody's, so times are upper bounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.studies.report import ROOT
from benchmarks.studies.slurm_cluster import USER, Cluster, cluster
from benchmarks.studies.study import Row, Study
from bridge.bus.views import RequestRef
from bridge.client.run.progress import progress_text
from bridge.records import Claim, RunnerSelector, RunRecord
from tests.support.runner_site import Site

MANY, KILLS = 200, 20
HOSTILE = ("timeout", "asked", "double-fork", "setsid", "sigterm-ignored")
FAULTS = (
    "controller-restarted", "controller-away-at-submit", "node-killed", "supervisor-killed", "scancel-queued",
    "scancel-running", "requeued", "no-node-has-it", "longest-wait", "cancelled-while-queued",
)  # fmt: skip
_FORK = "import os, signal, time\nprint('up', flush=True)\n"
PROGRAMS = {
    "plain": "pass",
    "slow": "import time; time.sleep(6)",
    "long": "import time; print('up', flush=True); time.sleep(600)",
    "timeout": "import time; print('up', flush=True); time.sleep(600)",
    "asked": "import time; print('up', flush=True); time.sleep(600)",
    "double-fork": f"{_FORK}if os.fork() == 0:\n  os.setsid()\n  os.fork()\ntime.sleep(600)",
    "setsid": f"{_FORK}if os.fork() == 0: os.setsid()\ntime.sleep(600)",
    "sigterm-ignored": f"{_FORK}for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nos.fork()\ntime.sleep(600)",
}
_PROGRAM = """import os, socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(os.environ['KAKEYA_RUN_ID'].encode(), ('127.0.0.1', {port}))
open(os.environ['KAKEYA_OUT'] + '/probe.json', 'w').write('{{}}')
{body}
"""
_INTERPRETER = """#!/usr/bin/python3 -IS
import os, sys
program = f"{folder}/programs/{{sys.argv[-1]}}.py"
if os.path.isfile(program):
    os.execv("/usr/bin/python3", ["python3", "-I", "-S", program])
python = "{python}" if os.access("{python}", os.X_OK) else "/usr/bin/python3"
os.execv(python, [python, *sys.argv[1:]])
"""
_PRESET = """schema = 1
name = "{name}"
status = "ready"
description = "a program of the study"
gate_profile = "probe"
[[commands]]
name = "count"
argv = ["${{engine}}", "{name}"]
[[outputs]]
path = "probe.json"
kind = "environment_probe"
[limits]
wall_s = {wall_s}
[sandbox]
mode = "required"
network = true
"""
_POLICY = """schema = 1
name = "{name}"
interpreter = "{interpreter}"
rate_per_hour = 0
slots = {slots}
labels = ["odd", "even", "nowhere"]
[presets]
folder = "{folder}/presets"
[sandbox]
mode = "required"
network = true
read_only = ["{folder}/programs"]
[limits]
grace_s = 1.0
disk_floor_bytes = 1048576
{executor}
"""
_EXECUTOR = """[executor]
engine = "slurm"
partition = "kakeya"
constraints = {{odd = "odd", even = "even", nowhere = "nowhere"}}
longest_wait_s = {longest_wait_s}
"""


@dataclass
class SlurmSite(Site):
    """A bus and a runner whose runs go to Slurm, or stay here.

    Attributes:
        engine: ``slurm`` or ``local``.
        as_root: does what only root may, and returns its answer.
    """

    engine: str = "slurm"
    slots: int = 4
    longest_wait_s: float = 3600.0
    as_root: Callable[..., Any] = print
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        port = self._listen()
        (self.folder / "programs").mkdir()
        for name, body in PROGRAMS.items():
            (self.folder / "programs" / f"{name}.py").write_text(_PROGRAM.format(port=port, body=body))
            preset = self.folder / "presets" / f"{name}.toml"
            preset.write_text(_PRESET.format(name=name, wall_s=8.0 if name == "timeout" else 900.0))
            preset.chmod(0o600)
        self.interpreter = self.folder / "programs" / "python"  # in the sandbox, too
        self.interpreter.write_text(_INTERPRETER.format(folder=self.folder, python=sys.executable))
        self.interpreter.chmod(0o755)
        self.create_bus()

    def _listen(self) -> int:
        """Hear of every start of a program, wherever it runs; return the port."""
        ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ear.bind(("127.0.0.1", 0))
        threading.Thread(target=self._hear, args=(ear,), daemon=True).start()
        return int(ear.getsockname()[1])

    def _hear(self, ear: socket.socket) -> None:
        while True:
            self.heard.append(ear.recv(64).decode())

    def policy(self, name: str = "mini") -> Path:
        path = self.folder / f"{name}.toml"
        executor = _EXECUTOR.format(longest_wait_s=self.longest_wait_s) if self.engine == "slurm" else ""
        path.write_text(
            _POLICY.format(
                name=name, interpreter=self.interpreter, folder=self.folder, slots=self.slots, executor=executor
            )
        )
        path.chmod(0o600)
        return path

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the runner, and wait until it serves."""
        log = self.folder / "mini.log"
        before = log.read_text().count("serves") if log.exists() else 0
        with log.open("ab") as told:
            process = subprocess.Popen(
                self.command("serve", "--bus", self.route), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=told
            )
        self.runners.append(process)  # type: ignore[arg-type]
        self.until(lambda: log.read_text().count("serves") > before, "it does not serve", 600.0)
        return process

    def send(self, preset: str, *labels: str) -> RequestRef:
        """Send a request."""
        return self.ask(preset, runner=RunnerSelector(labels=labels))

    def began(self, ref: RequestRef) -> None:
        """Wait until a request's program runs."""
        self.until(lambda: ref.id in self.heard, "its program never began", 900.0)

    def end_of(self, ref: RequestRef) -> Claim:
        """Wait for a run's end, whose result verifies."""
        self.until(lambda: self.claims.end(ref.id), "never ended", 1800.0)
        return self.ended(ref)

    def row(self, ref: RequestRef, **more: object) -> Row:
        """Return what became of a run, once whoever would end it again has had the time to."""
        claim = self.end_of(ref)
        files = self.requester().read_result(str(claim.result_oid)).files
        record, verdict = RunRecord.parse(files["run.json"], max_depth=32), json.loads(files["verdict.json"])
        time.sleep(1.0)
        assert isinstance(verdict, dict)
        return {
            "reason": claim.reason,
            "message": claim.message,
            "starts": self.heard.count(ref.id),
            "ended_twice": self.claim(ref) != claim,
            "survivors": self.as_root("left", ref.id),
            "sandbox": record.sandbox.kind,
            "node": record.host.name,
            "decision": verdict["decision"],
            "rules": sorted({one["code"] for one in verdict["findings"]}),
            "limits": [one.limit for one in record.limits_hit],
            **more,
        }

    def job(self, ref: RequestRef) -> str:
        """Return the number of a run's job, once there is one."""
        file = self.folder / "state-mini" / "runs" / ref.id / "submitted.json"

        def found() -> str | None:
            with contextlib.suppress(OSError, ValueError):
                return json.loads(file.read_text())["job"]
            return None

        self.until(found, "nothing was submitted", 900.0)
        return str(found())

    def squeue(self) -> list[list[str]]:
        """Return number, state and reason of all jobs."""
        said = subprocess.run(
            ["squeue", "-h", "--states=all", "-o", "%i|%T|%r"], capture_output=True, text=True, check=False, timeout=60
        )
        return [line.split("|") for line in said.stdout.splitlines()]

    def state(self, job: str) -> str:
        """Return a job's state, empty where Slurm knows none."""
        return next((state for number, state, _ in self.squeue() if number == job), "")


def cases() -> Sequence[str]:
    """Return all cases."""
    return [
        "doctor", "whole local", "whole slurm",
        *(f"hostile {name}" for name in HOSTILE), *(f"fault {name}" for name in FAULTS),
        *(f"kill {number}" for number in range(KILLS)), "spread", "many",
    ]  # fmt: skip


def run(case: str) -> list[Row]:
    """Do one case, as a user without rights, beside a cluster that root takes up and down.

    Raises:
        RuntimeError: this machine has no Slurm, or the case failed.
    """
    user = pwd.getpwnam(USER)
    with tempfile.TemporaryDirectory(prefix="kakeya-slurm-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("cluster", "site", "home"):
            (folder / part).mkdir()
        for part in ("site", "home"):
            os.chown(folder / part, user.pw_uid, user.pw_gid)
        with cluster(folder / "cluster") as made:
            words = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            words += [str(_python(folder)), "-m", "benchmarks.studies.slurm_runs", case, str(folder / "site")]
            environment = {
                "HOME": str(folder / "home"), "TMPDIR": str(folder / "home"), "PATH": os.environ["PATH"],
                "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **made.environment(),
            }  # fmt: skip
            child = subprocess.Popen(words, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            return _serve_child(made, child)


def _python(folder: Path) -> Path:
    """Make an environment with our packages that the user may run, wherever ours lies; return its interpreter."""
    made = folder / "venv"
    packages = made / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (made / "bin").mkdir()
    python = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if python is None:
        raise RuntimeError("the study's user needs a Python of our version outside of anybody's home")
    (made / "bin" / "python").symlink_to(python)
    (made / "pyvenv.cfg").write_text(f"home = {Path(python).parent}\n")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
    return made / "bin" / "python"


def _serve_child(made: Cluster, child: subprocess.Popen[bytes]) -> list[Row]:
    """Do what a case asks of root, until it hands over its rows."""
    assert child.stdin is not None
    assert child.stdout is not None
    for line in child.stdout:
        order = json.loads(line)
        if "rows" in order:
            child.wait()
            return list(order["rows"])
        answer = {"left": _left, "stop": made.stop, "controller": made.controller, "node": made.node, "call": made.call,
                  "kill": _kill}[order["do"]](*order["with"])  # fmt: skip
        child.stdin.write(json.dumps(answer).encode() + b"\n")
        child.stdin.flush()
    raise RuntimeError(f"the case ended with {child.wait()} and no rows")


def _left(run_id: str) -> int:
    """Return how many processes carry the run's id in their environment."""
    needle, count = f"KAKEYA_RUN_ID={run_id}".encode(), 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                count += needle in (folder / "environ").read_bytes().split(b"\0")
    return count


def _kill(pid: int) -> None:
    os.kill(pid, 9)


def _as_root(do: str, *words: object) -> Any:
    print(json.dumps({"do": do, "with": words}), flush=True)
    return json.loads(sys.stdin.readline())


def main(case: str, folder: Path, told: IO[str] = sys.stdout) -> None:
    """Do one case as this user and hand its rows over."""
    kind, _, what = case.partition(" ")
    changes: dict[str, Any] = {"engine": "local"} if what == "local" else {}
    if what == "longest-wait":
        changes["longest_wait_s"] = 5.0
    site = SlurmSite(folder, as_root=_as_root, lease_s=600.0, **changes)
    try:
        rows = {"whole": _whole, "hostile": _hostile, "fault": _fault, "kill": _killed, "spread": _spread,
                "many": _many, "doctor": _doctor}[kind](site, what)  # fmt: skip
    except BaseException:
        for log in (*folder.glob("*.log"), *folder.glob("state-*/runs/*/engine.log")):
            print(f"--- {log}\n{log.read_text()[-4000:]}", file=sys.stderr)
        raise
    finally:
        site.end()
    print(json.dumps({"rows": rows}), file=told, flush=True)


def _doctor(site: SlurmSite, _what: str) -> list[Row]:
    """Return what doctor says of the engine and of the folder that its nodes share."""
    done = subprocess.run(
        site.command("doctor", "--json", "--bus", site.route), cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    found = json.loads(done.stdout.replace(str(site.folder), "…"))
    return [one for one in found if one["name"] in {"slurm", "shared folder"}]


def _whole(site: SlurmSite, _what: str) -> list[Row]:
    site.serve()
    rows = []
    for number in range(4):
        asked = time.monotonic()
        ref = site.send("plain")
        site.end_of(ref)
        rows.append(site.row(ref, number=number, seconds=round(time.monotonic() - asked - 1.0, 2)))
    return rows


def _hostile(site: SlurmSite, what: str) -> list[Row]:
    site.serve()
    ref = site.send(what)
    site.began(ref)
    if what != "timeout":
        site.until(lambda: b"up" in b"".join(one.data for one in site.requester().read_log(ref.id)), "no log", 900.0)
        site.requester().ask_cancel(ref.id, b"{}")
    return [site.row(ref, case=what)]


def _killed(site: SlurmSite, what: str) -> list[Row]:
    drawn = random.Random(int(what))
    process = site.serve()
    ref = site.send("slow")
    time.sleep(drawn.uniform(0.0, 12.0))
    process.kill()
    process.wait()
    time.sleep(drawn.uniform(0.0, 3.0))
    site.serve()
    row = site.row(ref)
    jobs = len([one for one in site.squeue() if one[0]])
    return [{**row, "jobs": jobs, "lost": row["reason"] != "gate_rejected", "followed": _said(site, "following it")}]


def _said(site: SlurmSite, words: str) -> bool:
    return words in (site.folder / "mini.log").read_text()


def _spread(site: SlurmSite, _what: str) -> list[Row]:
    """Send a dozen requests to nodes by label, and a dozen to any."""
    site.serve()
    refs = [site.send("plain", *labels) for labels in (("odd",), ("even",), ()) for _ in range(8)]
    jobs = {ref.id: site.job(ref) for ref in refs[:1]}
    rows = [site.row(ref, wanted=("odd", "even", "any")[number // 8]) for number, ref in enumerate(refs)]
    for row, (job, node) in zip(rows, sorted(_nodes().items(), key=lambda one: int(one[0])), strict=False):
        row["job"], row["ran_on"] = job, node
    assert jobs
    return rows


def _nodes() -> dict[str, str]:
    """Return on which node each job ran."""
    said = subprocess.run(["squeue", "-h", "--states=all", "-o", "%i|%N"], capture_output=True, text=True, check=False,
                          timeout=60)  # fmt: skip
    return dict(line.split("|") for line in said.stdout.splitlines())


def _many(site: SlurmSite, _what: str) -> list[Row]:
    """Send many requests, count what runs at the same time, and in which order they began."""
    refs = [site.send("plain") for _ in range(MANY)]
    most, shown = 0, set()
    site.serve()
    while not all(site.claims.end(ref.id) for ref in refs):
        states = [state for _, state, _ in site.squeue()]
        most = max(most, sum(state in {"RUNNING", "COMPLETING"} for state in states))
        shown |= set(states)
        time.sleep(1.0)
    order = [ref.id for ref in refs]
    began = [order.index(run_id) for run_id in dict.fromkeys(site.heard)]
    ends = [site.ended(ref).reason for ref in refs]
    left = sum(site.as_root("left", run_id) for run_id in order)
    late = max((place - sent for place, sent in enumerate(began)), default=0)
    return [{
        "sent": MANY, "ended": len(ends), "reasons": {reason: ends.count(reason) for reason in set(ends)},
        "started_once": sum(site.heard.count(run_id) == 1 for run_id in order), "most_at_once": most,
        "slots": site.slots, "most_places_out_of_order": late, "survivors": left,
    }]  # fmt: skip


def _fault(site: SlurmSite, what: str) -> list[Row]:
    site.serve()
    return [{**_FAULTS[what](site), "case": what}]


def _controller_restarted(site: SlurmSite) -> Row:
    ref = site.send("slow")
    site.began(ref)
    site.as_root("stop", "slurmctld.pid")
    time.sleep(10.0)
    site.as_root("controller")
    return site.row(ref)


def _controller_away(site: SlurmSite) -> Row:
    site.as_root("stop", "slurmctld.pid")
    ref = site.send("plain")
    row = site.row(ref)
    site.as_root("controller")
    return row


def _node_killed(site: SlurmSite) -> Row:
    """Take a node away: its daemon and what it runs."""
    ref = site.send("long", "odd")
    site.began(ref)
    site.as_root("stop", "slurmd-n1.pid")
    site.as_root("kill", _facts(site, ref)["pid"])
    return site.row(ref)


def _supervisor_killed(site: SlurmSite) -> Row:
    ref = site.send("long")
    site.began(ref)
    site.as_root("kill", _facts(site, ref)["pid"])
    return site.row(ref)


def _facts(site: SlurmSite, ref: RequestRef) -> dict[str, Any]:
    file = site.folder / "state-mini" / "runs" / ref.id / "lock"
    site.until(lambda: file.stat().st_size > 0, "nobody supervises it", 900.0)
    return dict(json.loads(file.read_text()))


def _scancel_queued(site: SlurmSite) -> Row:
    site.as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=DOWN")
    ref = site.send("plain")
    site.as_root("call", "scancel", site.job(ref))
    return site.row(ref)


def _scancel_running(site: SlurmSite) -> Row:
    ref = site.send("long")
    site.began(ref)
    site.as_root("call", "scancel", site.job(ref))
    return site.row(ref)


def _requeued(site: SlurmSite) -> Row:
    """Have an operator requeue the job, which was submitted as one that is not; then cancel what goes on."""
    ref = site.send("long")
    site.began(ref)
    job = site.job(ref)
    said = site.as_root("call", "scontrol", "requeue", job)
    time.sleep(10.0)
    state = site.state(job)
    if state == "RUNNING":
        site.requester().ask_cancel(ref.id, b"{}")
    return site.row(ref, state=state, said=said)


def _no_node(site: SlurmSite) -> Row:
    return site.row(site.send("plain", "nowhere"))


def _longest_wait(site: SlurmSite) -> Row:
    site.as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=DOWN")
    return site.row(site.send("plain"))


def _cancelled_queued(site: SlurmSite) -> Row:
    """Cancel what waits, once its place in the queue was shown."""
    held = [site.send("long") for _ in range(4)]
    for ref in held:
        site.began(ref)
    site.as_root("call", "scontrol", "update", "PartitionName=kakeya", "State=DOWN")
    site.requester().ask_cancel(held[0].id, b"{}")
    site.end_of(held[0])
    ref = site.send("plain")
    job = site.job(ref)

    def waits() -> str | None:
        claim = site.claim(ref)
        return None if claim is None or claim.progress is None else progress_text(claim.progress)

    site.until(lambda: "queued on slurm" in str(waits()), "its place was never shown", 900.0)
    shown = waits()
    site.requester().ask_cancel(ref.id, b"{}")
    row = site.row(ref, shown=shown, job=site.state(job))
    for other in held[1:]:
        site.requester().ask_cancel(other.id, b"{}")
        site.end_of(other)
    return row


_FAULTS: dict[str, Callable[[SlurmSite], Row]] = {
    "controller-restarted": _controller_restarted,
    "controller-away-at-submit": _controller_away,
    "node-killed": _node_killed,
    "supervisor-killed": _supervisor_killed,
    "scancel-queued": _scancel_queued,
    "scancel-running": _scancel_running,
    "requeued": _requeued,
    "no-node-has-it": _no_node,
    "longest-wait": _longest_wait,
    "cancelled-while-queued": _cancelled_queued,
}

STUDY = Study("slurm-runs", "Does a run on a real Slurm end as at home, whatever happens to runner, node or queue?",
              cases, run)  # fmt: skip

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
