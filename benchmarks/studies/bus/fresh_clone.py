"""What the first `run` of a fresh clone costs on a bus with runs of others: git calls, and bytes that the server sends.

The bus is served over HTTP through a proxy that counts. Beside the runs that ended waits a request of a stranger whose
branch holds a file of 100 MB; nothing of it is needed to send another question.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.studies.bus.calls import noted, verb
from benchmarks.studies.bus.histories import PRESET, History, write_history
from benchmarks.studies.study import Row, Study
from bridge.bus import open_bus
from bridge.ids import new_id
from bridge.limits import MIB
from bridge.system.clock import SystemClock
from tests.fakes.clone import Clone
from tests.fakes.git_servers import HELPER, HttpServer, Proxy, bare, git
from tests.fakes.memory_bus import bus_record
from tests.fakes.scripted_host import ScriptedHost

RUNS: Final = {"1 run": 1, "42 runs": 42, "1000 runs": 1000}
DAYS: Final = 10.0
LARGE_BYTES: Final = 100 * MIB


def cases() -> Sequence[str]:
    """Return a case for each number of runs that ended before."""
    return list(RUNS)


def run(case: str) -> list[Row]:
    """Send one request from a clone that knows nothing of the bus.

    Raises:
        RuntimeError: it was not sent.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name:
        return [{"runs": RUNS[case]} | _measured(Path(name), RUNS[case])]


def _measured(folder: Path, runs: int) -> Row:
    clock, root, served = SystemClock(), folder / "served", folder / "http"
    root.mkdir()
    served.mkdir()
    remote = bare(root / "bus.git")
    bus = open_bus(str(remote), repository=None, state=folder / "host", clock=clock)
    bus.create(bus_record(clock))
    write_history(remote, History(runs, DAYS), clock.now())
    _push_large(remote, folder / "stranger", clock)
    ScriptedHost(bus, clock).beat()
    server = HttpServer(served, root)
    proxy = Proxy(server.port)
    try:
        with noted(folder) as log:
            clone = Clone(folder / "fresh")
            clone.git("config", "credential.helper", HELPER)
            log.write_text("")
            sent = clone.mac("run", PRESET, "--bus", server.url(remote, proxy.port))
            calls = Counter(verb(line) for line in log.read_text().splitlines())
    finally:
        proxy.close()
        server.close()
    if sent.returncode != 0:
        raise RuntimeError(f"not sent: {sent.stderr}")
    stored = sum(path.stat().st_size for path in clone.root.rglob("*") if path.is_file())
    return {"git calls": calls.total(), "bytes sent by the server": proxy.bytes_down, "bytes kept": stored} | calls


def _push_large(remote: Path, work: Path, clock: SystemClock) -> None:
    """Push a stranger's request whose tree holds a large file, under a name as other requests have it."""
    (work / ".mac-bridge").mkdir(parents=True)
    (work / ".mac-bridge" / "request.json").write_text("{}")
    (work / "large").write_bytes(os.urandom(LARGE_BYTES))
    git("init", "-q", str(work))
    for words in (("add", "-A"), ("commit", "-qm", "x")):
        subprocess.run(
            ["git", "-c", "core.compression=0", "-c", "user.name=s", "-c", "user.email=s@example.org", *words],
            cwd=work, check=True,
        )  # fmt: skip
    run_id = new_id(int(clock.now().timestamp() * 1000), os.urandom(10))
    ref = f"refs/heads/mac-bridge/{PRESET}-{run_id}-{'a' * 12}"
    git("-c", "pack.compression=0", "push", "-q", str(remote), f"HEAD:{ref}", cwd=work)


STUDY = Study(
    "fresh-clone", "What does the first run of a fresh clone cost on a bus with runs of others?", cases, run, "a minute"
)
