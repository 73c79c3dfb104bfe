"""What a node adds to a job: the cards that its engine gave it, and nothing where the owner has said which."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.executor.engines.node import at_node, node_of
from bridge.executor.holder.folder import JobFile
from bridge.executor.interface import HostPaths
from bridge.executor.sandbox.confinement import nothing
from bridge.records.jobspec import EnvironmentVariable, SandboxSpec
from tests.fakes.local_jobs import Jobs


def placed(root: Path, *environment: EnvironmentVariable) -> JobFile:
    spec = Jobs(executor=None, base=None).spec(argv=[("true",)], sandbox=SandboxSpec(mode="off"))
    folders = {name: str(root) for name in ("root", "work", "out", "home", "tmp")}
    return JobFile(
        spec=spec.evolve(environment=environment), offered=nothing("tried there"), paths=HostPaths(), **folders
    )


def cards(job: JobFile) -> list[tuple[str, str]]:
    return [
        (variable.value, variable.origin)
        for variable in job.spec.environment
        if variable.name == "CUDA_VISIBLE_DEVICES"
    ]


def test_a_run_sees_the_cards_that_its_engine_gave_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert cards(at_node(placed(tmp_path), tmp_path)) == [("1,3", "runner")]
    own = EnvironmentVariable(name="CUDA_VISIBLE_DEVICES", value="0", origin="policy")
    assert cards(at_node(placed(tmp_path, own), tmp_path)) == [("0", "policy")]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    job = at_node(placed(tmp_path), tmp_path, tied=True)
    assert (cards(job), job.tied, node_of(tmp_path)) == ([], True, job.host)
