"""Where a host cannot deny a way out, a run that needs it denied is refused before anything starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bridge.errors import SandboxUnavailableError
from bridge.executor.interface import RunKind
from bridge.executor.local import LocalExecutor
from bridge.executor.sandbox.confinement import Unconfined, nothing
from bridge.executor.trial import SandboxTrial, try_sandbox
from bridge.records.jobspec import SandboxSpec
from bridge.runner.maintenance.doctor import DoctorContext, examine
from bridge.runner.state.folder import StateFolder
from bridge.system.clock import SystemClock
from tests.fakes.local_jobs import Jobs

CLOCK = SystemClock()


class Leaky(LocalExecutor):
    """The executor of a host whose sandbox holds nothing back, as its own trial finds out."""

    def try_out(self, uid: int | None, kind: RunKind) -> SandboxTrial:
        return try_sandbox(CLOCK, uid, lambda _, directory: Unconfined(nothing("a sieve"), directory.work), kind=kind)


@pytest.fixture
def leaky(tmp_path) -> Jobs:
    return Jobs(Leaky(CLOCK), tmp_path)


def test_a_run_that_requires_a_sandbox_is_refused_and_nothing_starts(leaky, token):
    marker = leaky.base / "started"
    with pytest.raises(SandboxUnavailableError, match="a run can ") as refusal:
        leaky.run(f"open({str(marker)!r}, 'w')  # {token}", sandbox=SandboxSpec(mode="required"))

    assert "kakeya-runner doctor" in str(refusal.value)
    assert leaky.started == []
    assert not marker.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="an ordinary user has no other user for its runs")
def test_a_run_that_only_prefers_one_says_what_it_ran_without(leaky, token):
    execution = leaky.run(f"print('ran')  # {token}", sandbox=SandboxSpec(mode="preferred"))

    assert execution.program_exit == 0
    assert execution.sandbox.kind == "none"
    assert "a run can " in execution.sandbox.reason


@pytest.mark.skipif(os.getuid() == 0, reason="root has another user for its runs")
def test_a_run_that_only_prefers_one_is_refused_where_it_could_read_the_runners_key(leaky, token):
    with pytest.raises(SandboxUnavailableError, match="no other user for its runs"):
        leaky.run(f"print('never')  # {token}", sandbox=SandboxSpec(mode="preferred"))

    assert leaky.started == []


@pytest.mark.skipif(sys.platform != "linux", reason="becoming another user is tried on Linux")
def test_a_user_the_runner_cannot_become_is_refused_beforehand(leaky, token):
    if os.getuid() == 0:
        pytest.skip("root may become anybody")
    with pytest.raises(SandboxUnavailableError):
        leaky.run(f"print('never')  # {token}", sandbox=SandboxSpec(mode="required", uid=1))

    assert leaky.started == []


@pytest.mark.parametrize(("mode", "level"), [("required", "fail"), ("preferred", "warn")])
def test_doctor_lists_every_open_way_with_a_remedy(tmp_path, mode, level):
    policy = _policy(tmp_path, mode)
    findings = list(examine(DoctorContext(policy, StateFolder(tmp_path / "state"), Leaky(CLOCK), CLOCK, None)))
    escapes = [finding for finding in findings if finding.name == "escape"]

    assert {finding.level for finding in escapes} == {"ok", level}
    assert all((finding.remedy is None) == (finding.level == "ok") for finding in escapes)
    assert any("a run can write outside its directories" in finding.text for finding in escapes)
    assert [finding.level for finding in findings if finding.name == "sandbox"] == [level]


def test_doctor_lists_every_way_that_was_refused_on_this_platform(tmp_path, executor, need_sandbox):
    need_sandbox("sandboxed")
    policy = _policy(tmp_path, "required")
    findings = list(examine(DoctorContext(policy, StateFolder(tmp_path / "state"), executor, CLOCK, None)))
    escapes = [finding for finding in findings if finding.name == "escape"]

    assert len(escapes) == len(executor.escapes())
    assert {finding.level for finding in escapes} == {"ok"}
    assert all(finding.text.startswith(f"{sys.platform}: a run is refused to ") for finding in escapes)


def test_an_executor_without_a_sandbox_lists_no_way_as_refused(tmp_path):
    class Bare(LocalExecutor):
        def try_out(self, uid: int | None, kind: RunKind) -> SandboxTrial:
            return SandboxTrial(nothing("bubblewrap (bwrap) is not installed"))

    policy = _policy(tmp_path, "required")
    findings = list(examine(DoctorContext(policy, StateFolder(tmp_path / "state"), Bare(CLOCK), CLOCK, None)))

    assert [finding for finding in findings if finding.name == "escape"] == []
    assert [finding.level for finding in findings if finding.name == "sandbox"] == ["fail"]


def _policy(folder: Path, mode: str) -> Path:
    folder.chmod(0o700)
    path = folder / "policy.toml"
    path.write_text(f'schema = 1\nname = "desk"\ninterpreter = "{sys.executable}"\n[sandbox]\nmode = "{mode}"\n')
    path.chmod(0o600)
    return path
