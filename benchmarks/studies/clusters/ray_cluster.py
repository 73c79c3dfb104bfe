"""Ray on this machine for a study: a head and a second node, of a user without rights, with a token.

From a virtual environment of its own, which KAKEYA_RAY names by its `ray` command. Both nodes share the kernel.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.studies.clusters.site import USER, python_for_user
from benchmarks.studies.clusters.slurm_cluster import until

VARIABLE = "KAKEYA_RAY"
_MARK = "KAKEYA_RAY_STUDY"
_NODES = {"odd": 2, "even": 2}


@dataclass
class RayCluster:
    """A cluster that runs.

    Attributes:
        folder: of the study; what Ray writes goes to a short path of its own.
        python: finds Ray's packages, and runs as the user.
        temporary: Ray's own folder.
        token: what its servers want to be sent.
    """

    folder: Path
    python: Path
    temporary: Path
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: tuple[int, ...] = ()

    @property
    def address(self) -> str:
        """Where its jobs server listens."""
        return f"http://127.0.0.1:{self.ports[1]}"

    def start(self, node: str) -> None:
        """Start a node: the first is the head, and waited for until it takes jobs."""
        user, place = pwd.getpwnam(USER), list(_NODES).index(node)
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": str(self.temporary), "LANG": "C.UTF-8", "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token, "RAY_memory_monitor_refresh_ms": "0", "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0", _MARK: self.mark,
        }  # fmt: skip
        ports = f"--port={self.ports[0]} --dashboard-port={self.ports[1]}"
        head = f"--head {ports} --dashboard-host=127.0.0.1 --temp-dir={self.temporary}".split()
        where = head if place == 0 else [f"--address=127.0.0.1:{self.ports[0]}"]
        words = [
            "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", str(self.python), "-c",
            "import sys; from ray.scripts.scripts import main; sys.exit(main())", "start", "--block", *where,
            "--node-ip-address=127.0.0.1", f"--num-cpus={_NODES[node]}", f"--resources={json.dumps({node: 1000})}",
            "--object-store-memory=80000000", "--include-log-monitor=false",
            f"--dashboard-agent-listen-port={self.ports[2 + place]}",
        ]  # fmt: skip
        with (self.folder / f"ray-{node}.log").open("ab") as log:
            self.nodes[node] = subprocess.Popen(
                words, cwd="/", env=environment, stdout=log, stderr=log, start_new_session=True
            )
        until(lambda: node in self.resources(), f"node {node} does not come up", 900.0)

    def ask(self, method: str, path: str) -> Any:
        """Return what the jobs server answers, None where it does not."""
        request = urllib.request.Request(
            f"{self.address}{path}", method=method, headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())
        except (OSError, ValueError, urllib.error.URLError):
            return None

    def resources(self) -> set[str]:
        """Return which of its nodes are up."""
        status = str(self.ask("GET", "/api/cluster_status"))
        return {node for node in _NODES if f"/1000.0 {node}" in status}

    def jobs(self) -> list[dict[str, Any]]:
        """Return all of its jobs."""
        return list(self.ask("GET", "/api/jobs/") or [])

    def stop_job(self, job: str) -> object:
        """Stop a job as somebody on the dashboard does."""
        return self.ask("POST", f"/api/jobs/{job}/stop")

    def stop(self, node: str) -> None:
        """Kill a node: every process that its start left, by its id.

        After the head, wait until its jobs server listens no more; the next one gets another port beside it, as the
        old head's other nodes look for it at the first, and Ray starts no second one there while they do.
        """
        process = self.nodes.pop(node)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if node == next(iter(_NODES)):
            until(lambda: not _listens(self.ports[1]), "the head that was stopped still listens", 60.0)
            self.ports = (*_free_ports(1), *self.ports[1:])

    def left(self) -> list[int]:
        """Return the processes of its daemons and workers."""
        pids, needle = [], f"{_MARK}={self.mark}".encode()
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    if needle in (folder / "environ").read_bytes().split(b"\0"):
                        pids.append(int(folder.name))
        return pids

    def end(self) -> None:
        """End all of it."""
        for node in reversed(list(self.nodes)):
            self.stop(node)
        for _ in range(50):
            for pid in self.left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not self.left():
                return
            time.sleep(0.2)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def _free_ports(count: int) -> tuple[int, ...]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in taken:
            listener.bind(("127.0.0.1", 0))
        return tuple(int(listener.getsockname()[1]) for listener in taken)


@contextmanager
def ray_cluster(folder: Path) -> Iterator[RayCluster]:
    """Yield a cluster of two nodes, ended with all of its processes at the end of the block.

    Raises:
        RuntimeError: this process is not root, or KAKEYA_RAY names no Ray.
    """
    command = os.environ.get(VARIABLE, "")
    packages = sorted(Path(command).absolute().parents[1].glob("lib/python3*/site-packages")) if command else []
    if os.geteuid() != 0 or not packages or not Path(command).exists():
        raise RuntimeError(f"needs root, and {VARIABLE}=VENV/bin/ray of a virtual environment with ray[default]")
    temporary = Path(tempfile.mkdtemp(prefix="kr-", dir="/tmp"))
    user = pwd.getpwnam(USER)
    os.chown(temporary, user.pw_uid, user.pw_gid)
    made = RayCluster(folder, python_for_user(folder, *packages), temporary, ports=_free_ports(4))
    try:
        for node in _NODES:
            made.start(node)
        yield made
    finally:
        made.end()
        shutil.rmtree(temporary, ignore_errors=True)
