"""A run on a node is bounded and redacted as one of this machine is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.executor.engines.executor import EngineExecutor
from bridge.executor.engines.placed import ClusterQueue
from bridge.executor.engines.ray import RayOptions
from bridge.executor.interface import Executor, HostPaths
from bridge.executor.local import LocalExecutor
from tests.fakes.local_engine import LocalEngine
from tests.fakes.local_jobs import Jobs
from tests.fakes.ray_jobs import HeldRay, ray_jobs
from tests.support.placed_queue import CLOCK

SECRET = "s3cret-value"
TALKS = f"print('{SECRET}', flush=True)\nprint('.' * 100_000 + '{SECRET}', flush=True)\nwhile True: pass"
FILLS = "import os, time\nopen(os.environ['KAKEYA_OUT'] + '/big', 'wb').write(b'.' * 2_000_000)\ntime.sleep(60)"
PROGRAMS = {
    "talks": (TALKS, ("cpu_s", "log_bytes"), {"cpu_s": 1.0, "log_bytes": 4096}),
    "fills": (FILLS, ("output_bytes",), {"output_bytes": 1_000_000}),
}


@dataclass(frozen=True)
class Bounded:
    """What of an execution its bounds decide."""

    ok: bool
    ending: str
    limits: tuple[str, ...]
    log: bytes
    truncated_bytes: int
    redactions: int | None


def bounded(executor: Executor, base: Path, program: str, **limits: float) -> Bounded:
    base.mkdir()
    ran = Jobs(executor, base).run(program, secrets=(SECRET,), **limits)
    names = tuple(hit.limit for hit in ran.limits_hit)
    return Bounded(ran.ok, ran.ending, names, ran.log, ran.log_truncated_bytes, ran.redactions)


@contextmanager
def placing(engine: str, base: Path) -> Iterator[Executor]:
    """Yield an executor whose runs an engine places on this machine."""
    if engine == "ray":
        with ray_jobs() as site:
            queue = ClusterQueue(HeldRay(site.address, lambda: None, RayOptions(), CLOCK), 600.0, settle_s=0.2)
            yield EngineExecutor(CLOCK, queue, HostPaths(), base / "trials")
        return
    local = LocalEngine()
    yield EngineExecutor(CLOCK, ClusterQueue(local, 600.0, settle_s=0.2), HostPaths(), base / "trials")
    local.end_all()


@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_limits_and_redaction_of_a_placed_run_are_those_at_home(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.executor.engines.ray.os.geteuid", lambda: 1000)
    here = LocalExecutor(CLOCK)
    for name, (program, reached, limits) in PROGRAMS.items():
        (tmp_path / name).mkdir()
        with placing(engine, tmp_path / name) as there:
            placed = bounded(there, tmp_path / name / "there", program, **limits)
        assert placed == bounded(here, tmp_path / name / "here", program, **limits)
        assert (placed.limits, SECRET.encode() in placed.log) == (reached, False)
        if name == "talks":
            assert (placed.redactions, placed.truncated_bytes > 0) == (2, True)
