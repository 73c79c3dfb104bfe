"""A remote that answers after up to four seconds and loses one call in a hundred: does a run lose its lease by that?

Long runs are stepped on a virtual clock over the bus in memory. Over real git a proxy in front of an HTTP server holds
back each request and closes one connection in a hundred.
"""

from __future__ import annotations

import contextlib
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.studies.study import Row, Study
from bridge.bus.refbus import RefBus
from bridge.bus.store.git import GitStore
from bridge.bus.store.push_budget import Pacer
from bridge.bus.store.route import Route
from bridge.executor.interface import RunDirectory
from bridge.presets import registry
from bridge.records import JobSpec
from bridge.runner.authorisation.rules import OwnerRules
from bridge.runner.connection.link import link_to
from bridge.runner.machine.machine import Machine
from bridge.runner.policy.file import read_policy
from bridge.runner.service.loop import Runner
from bridge.runner.service.serve import serve
from bridge.runner.state.folder import OpenState, StateFolder
from bridge.runner.state.log import new_log
from bridge.system.clock import SystemClock
from bridge.trust.verifier import verify_tree
from tests.fakes.asking import make_request, push
from tests.fakes.fake_executor import FakeExecutor
from tests.fakes.git_servers import HELPER, HttpServer, bare
from tests.fakes.memory_bus import bus_record
from tests.steps.bus import LOSS, SLOW_S
from tests.steps.world import SteppedWorld
from tests.support.runner_world import FixedCode, Lines, probe

STEPPED, SERVED = "3 runners, 24 runs of an hour, stepped", "6 runs of 90 s over HTTP"
SEEDS = (1, 2, 3)
RUN_S, LIMIT_S = 3600.0, 48 * 3600.0
HTTP_RUNS, HTTP_RUN_S, HTTP_LIMIT_S = 6, 90.0, 900.0
LOST = frozenset({"runner_lost", "interrupted", "publish_failed", "infrastructure"})
POLICY = b'schema = 1\nname = "mini"\ninterpreter = "/usr/bin/python3"\nrate_per_hour = 0\nslots = 6\n'


def cases() -> Sequence[str]:
    """Return a case for each seed of the stepped runs, and one over HTTP."""
    return [*(f"{STEPPED}, seed {seed}" for seed in SEEDS), SERVED]


def run(case: str) -> list[Row]:
    """Let runs go on over a bad network until all have ended.

    Raises:
        RuntimeError: a run has no result, began twice, or ended because its runner seemed gone.
    """
    with tempfile.TemporaryDirectory(prefix="delays-") as name:
        row = served(Path(name)) if case == SERVED else stepped(Path(name), int(case.rpartition(" ")[2]))
    if row["without a result"] or row["lost a lease"] or row["run twice"]:
        raise RuntimeError(f"{row}")
    return [row]


def stepped(folder: Path, seed: int) -> Row:
    """Step three runners and their requests, each run an hour long."""
    world = SteppedWorld(folder, seed=seed, run_s=RUN_S, slow=True, hosted=True, record={"lease_s": 600.0})
    try:
        for number in range(3):
            world.serve(world.runner(f"runner-{number}"))
        refs = [world.ask() for _ in range(24)]
        world.clock.run_until(lambda: all(world.ended(ref.id) for ref in refs), world.clock.steady_s() + LIMIT_S)
        claims = [view.claim.claim for ref in refs if (view := world.view(ref.id)).claim is not None]
        times = world.times_executed()
    finally:
        world.close()
    ended = [claim for claim in claims if claim.state == "terminal"]
    return {
        "runs": len(refs),
        "without a result": len(refs) - sum(claim.result_oid is not None for claim in ended),
        "lost a lease": sum(claim.reason in LOST for claim in ended),
        "run twice": sum(count > 1 for count in times.values()),
        "longest lease s": max((claim.lease_s for claim in claims), default=0.0),
    }


class SlowLine:
    """A proxy that holds back each request for up to four seconds, and closes one connection in a hundred."""

    def __init__(self, target: int, seed: int) -> None:
        self._target, self._chance = target, random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.counts: Counter[str] = Counter()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nothing more."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if data.startswith((b"GET ", b"POST ")):
                    self.counts["requests"] += 1
                    time.sleep(self._chance.uniform(0.0, SLOW_S))
                    if self._chance.random() < LOSS:
                        self.counts["lost"] += 1
                        break
                server.sendall(data)
        _shut(client, server)

    def _pass(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _shut(client, server)


def _shut(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def served(folder: Path) -> Row:
    """Let one runner take six requests over a slow line to a real git server."""
    clock, said = SystemClock(), []
    (folder / "server").mkdir()
    remote = bare(folder / "remote.git")
    server = HttpServer(folder / "server", folder)
    line = SlowLine(server.port, 1)
    stopping = threading.Event()
    try:
        near = RefBus(_store(folder / "near", str(remote)), clock=clock, pacer=Pacer(None, 60.0, clock))
        near.create(bus_record(clock, lease_s=600.0))
        far = RefBus(_store(folder / "far", server.url(remote, line.port)), clock=clock, pacer=Pacer(None, 60.0, clock))
        refs = [push(near, make_request(near.identity().bus_id, "mlx-env-probe")) for _ in range(HTTP_RUNS)]
        state = StateFolder(folder / "runner")
        state.create()
        executor = FakeExecutor(clock, _slow_probe)
        runner = Runner(
            OwnerRules(read_policy(POLICY), dict(registry())), Machine(executor, FixedCode(), "0"),
            OpenState.open(state, "mini", clock), link_to(far, clock),
            clock=clock, stopping=stopping, log=new_log(Lines(said)),
        )  # fmt: skip
        serving = threading.Thread(target=serve, args=(runner,), daemon=True)
        serving.start()
        deadline_s = clock.steady_s() + HTTP_LIMIT_S
        while len(runner.outcomes) < HTTP_RUNS and clock.steady_s() < deadline_s:
            clock.sleep(1.0)
        stopping.set()
        serving.join(60)
        claims = [view.claim.claim for ref in refs if (view := near.view(ref.id)).claim is not None]
        whole = sum(
            claim.result_oid is not None and not verify_tree(near.read_result(claim.result_oid).files, run_id=claim.id)
            for claim in claims
        )
    finally:
        line.close()
        server.close()
    times = Counter(spec.id for spec in executor.executed)
    return {
        "runs": len(refs),
        "without a result": len(refs) - whole,
        "lost a lease": sum(claim.reason in LOST for claim in claims),
        "run twice": sum(count > 1 for count in times.values()),
        "longest lease s": max((claim.lease_s for claim in claims), default=0.0),
        "requests held back": line.counts["requests"],
        "connections lost": line.counts["lost"],
    }


def _store(state: Path, url: str) -> GitStore:
    state.mkdir()
    return GitStore(Route(url, url, (("credential.helper", HELPER), ("protocol.version", "2")), is_local=True), state)


def _slow_probe(spec: JobSpec, directory: RunDirectory) -> Iterator[bytes]:
    time.sleep(HTTP_RUN_S)
    return (yield from probe(spec, directory))


STUDY = Study("delays", "Does a run lose its lease because its remote is slow and loses calls?", cases, run)
