"""A bus, a runner whose runs go to a cluster of this machine, and what all studies of clusters do with them.

A case is a process of a user without rights; what only root may do, it asks of the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row
from bridge.bus.views import RequestRef
from bridge.client.run.progress import progress_text
from bridge.records.claim import Claim
from bridge.records.request import RunnerSelector
from bridge.records.run import RunRecord
from tests.support.runner_site import Site

USER = "nobody"
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
network = "host"
"""
_POLICY = """schema = 1
name = "{name}"
interpreter = "{interpreter}"
rate_per_hour = 0
slots = {slots}
labels = ["odd", "even", "nowhere", "small", "large"]
[presets]
folder = "{folder}/presets"
[sandbox]
mode = "required"
network = "host"
read_only = ["{folder}/programs"]
[limits]
grace_s = 1.0
disk_floor_bytes = 1048576
{executor}
"""
_EXECUTOR = """[executor]
engine = "{engine}"
{options}
constraints = {{odd = "odd", even = "even", nowhere = "nowhere"}}
longest_wait_s = {longest_wait_s}
"""


@dataclass
class ClusterSite(Site):
    """A bus and a runner whose runs go to a cluster, or stay here.

    Attributes:
        engine: ``local``, ``slurm`` or ``ray``.
        options: lines of the policy's [executor] that only this engine has.
    """

    engine: str = "local"
    options: str = ""
    slots: int = 4
    longest_wait_s: float = 3600.0
    lease_s: float = 600.0
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
        executor = _EXECUTOR.format(engine=self.engine, options=self.options, longest_wait_s=self.longest_wait_s)
        executor = "" if self.engine == "local" else executor
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
        with log.open("ab") as output:
            process = subprocess.Popen(
                self.command("serve", "--bus", self.route), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=output
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
            "survivors": as_root("left", ref.id),
            "sandbox": record.sandbox.kind,
            "node": record.host.name,
            "decision": verdict["decision"],
            "rules": sorted({finding["code"] for finding in verdict["findings"]}),
            "limits": [hit.limit for hit in record.limits_hit],
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

    def shown_place(self, ref: RequestRef) -> str:
        """Return what a request's claim shows of its place in the queue, once it does."""

        def shown() -> str:
            claim = self.claim(ref)
            return "" if claim is None or claim.progress is None else progress_text(claim.progress)

        self.until(lambda: f"queued on {self.engine}" in shown(), "its place was never shown", 900.0)
        return shown()


def as_user(
    module: str, case: str, folder: Path, environment: Mapping[str, str], orders: Mapping[str, Callable[..., Any]]
) -> list[Row]:
    """Do a case in a process of the study's user; return its rows.

    Args:
        module: has a `main(case, folder)`, and runs it as a program.
        folder: an empty one, with ``site`` and ``home`` in it for the user.
        environment: what the case's commands need besides.
        orders: what the case may ask to have done as this user.

    Raises:
        RuntimeError: it handed over no rows.
    """
    user = pwd.getpwnam(USER)
    words = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    words += [str(python_for_user(folder)), "-m", module, case, str(folder / "site")]
    given = {
        "HOME": str(folder / "home"), "TMPDIR": str(folder / "home"), "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment,
    }  # fmt: skip
    child = subprocess.Popen(words, cwd=ROOT, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return _serve_child(child, {"left": _left, "kill": _kill, "waiting": _waiting, **orders})


def folders_for_user(folder: Path) -> None:
    """Make the folders of a case: ``cluster`` is root's, the others the user's."""
    user = pwd.getpwnam(USER)
    folder.chmod(0o755)
    for part in ("cluster", "site", "home"):
        (folder / part).mkdir()
    for part in ("site", "home"):
        os.chown(folder / part, user.pw_uid, user.pw_gid)


def python_for_user(folder: Path, *more: Path) -> Path:
    """Make an environment that the user may run, with our packages or with those folders; return its interpreter."""
    made = folder / ("venv-more" if more else "venv")
    packages = made / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (made / "bin").mkdir()
    python = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if python is None:
        raise RuntimeError("the study's user needs a Python of our version outside of anybody's home")
    (made / "bin" / "python").symlink_to(python)
    (made / "pyvenv.cfg").write_text(f"home = {Path(python).parent}\n")
    ours = [str(path) for path in more] or [path for path in sys.path if path.endswith("site-packages")]
    (packages / "ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
    return made / "bin" / "python"


def _serve_child(child: subprocess.Popen[bytes], orders: Mapping[str, Callable[..., Any]]) -> list[Row]:
    """Do what a case asks of root, until it hands over its rows."""
    assert child.stdin is not None
    assert child.stdout is not None
    for line in child.stdout:
        order = json.loads(line)
        if "rows" in order:
            child.wait()
            return list(order["rows"])
        answer = orders[order["do"]](*order["with"])
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


def _waiting(run_id: str, supervisor: int) -> int:
    """Return the process that an engine started for a run, and that only waits for its supervisor.

    Raises:
        RuntimeError: there is none.
    """
    for process in psutil.process_iter(["cmdline", "ppid"]):
        words = process.info["cmdline"] or []
        apart = "--apart" in words and any(word.endswith(run_id) for word in words)
        if apart and supervisor not in {process.pid, process.info["ppid"]}:
            return int(process.pid)
    raise RuntimeError(f"nothing waits for {run_id}")


def _kill(pid: int) -> None:
    os.kill(pid, 9)


def as_root(do: str, *words: object) -> Any:
    """Have the process that started the case do something; return its answer."""
    print(json.dumps({"do": do, "with": words}), flush=True)
    return json.loads(sys.stdin.readline())


def facts_of(site: ClusterSite, ref: RequestRef) -> dict[str, Any]:
    """Return who supervises a run, once somebody does."""
    file = site.folder / "state-mini" / "runs" / ref.id / "lock"
    site.until(lambda: file.stat().st_size > 0, "nobody supervises it", 900.0)
    return dict(json.loads(file.read_text()))
