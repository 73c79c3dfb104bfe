"""The Actions job hook: which workflow files run, and that nothing runs after a refusal."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from bridge.errors import PolicyRefusedError
from bridge.runner.actions.job_hook import AllowedWorkflow, JobFacts, completed, decide, facts_of
from tests.support.deep_folder import make_deep
from tests.support.waiting import PATIENCE_S, until

WORKFLOW = b"name: mac-bridge\n"
COMMIT = "1" * 40
ENVIRONMENT = {
    "GITHUB_WORKFLOW_REF": "owner/repo/.github/workflows/mac-bridge.yml@refs/heads/mac-bridge/x",
    "GITHUB_WORKFLOW_SHA": COMMIT,
}
ALLOWED = (
    AllowedWorkflow(
        "owner/repo",
        ".github/workflows/mac-bridge.yml",
        hashlib.sha256(WORKFLOW).hexdigest(),
        ("refs/heads/mac-bridge/*",),
    ),
)


@pytest.mark.parametrize(
    ("changes", "content", "accepted"),
    [
        ({}, WORKFLOW, True),
        ({}, WORKFLOW + b"#", False),
        ({"GITHUB_WORKFLOW_REF": "owner/repo/.github/workflows/other.yml@refs/heads/mac-bridge/x"}, WORKFLOW, False),
        (
            {"GITHUB_WORKFLOW_REF": "fork/repo/.github/workflows/mac-bridge.yml@refs/heads/mac-bridge/x"},
            WORKFLOW,
            False,
        ),
        ({"GITHUB_WORKFLOW_REF": "owner/repo/.github/workflows/mac-bridge.yml@refs/heads/main"}, WORKFLOW, False),
        ({"GITHUB_WORKFLOW_REF": "owner/repo/.github/workflows/mac-bridge.yml@refs/pull/3/merge"}, WORKFLOW, False),
    ],
    ids=["listed", "edited", "foreign file", "foreign repository", "listed file on another ref", "pull request"],
)
def test_only_a_listed_file_on_a_listed_ref_is_accepted(changes, content, accepted: bool) -> None:
    decision = decide(facts_of({**ENVIRONMENT, **changes}), ALLOWED, lambda facts: content)
    assert decision.accepted is accepted
    assert decision.why


def test_an_older_listed_version_is_accepted_only_while_it_is_listed() -> None:
    replayed = decide(facts_of(ENVIRONMENT), (), lambda facts: WORKFLOW)
    assert not replayed.accepted


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {**ENVIRONMENT, "GITHUB_WORKFLOW_SHA": "HEAD"},
        {**ENVIRONMENT, "GITHUB_WORKFLOW_REF": "owner/repo/../x.yml@refs/heads/main"},
        {**ENVIRONMENT, "GITHUB_WORKFLOW_REF": ENVIRONMENT["GITHUB_WORKFLOW_REF"] + "\n--upload-pack=x"},
    ],
)
def test_a_job_nobody_can_identify_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(PolicyRefusedError):
        facts_of(environment)


def test_the_digest_is_of_the_bytes_at_the_jobs_own_commit() -> None:
    facts_read: list[JobFacts] = []

    def read(facts: JobFacts) -> bytes:
        facts_read.append(facts)
        return WORKFLOW

    decide(facts_of(ENVIRONMENT), ALLOWED, read)
    assert [facts.commit for facts in facts_read] == [COMMIT]


WORKER = """
    import os, pathlib, subprocess, sys
    here = pathlib.Path(sys.argv[1])
    (here / "worker.pid").write_text(str(os.getpid()))
    step = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # a `pre:` step already on its way
    (here / "step.pid").write_text(str(step.pid))
    code = subprocess.run([sys.executable, sys.argv[2], *sys.argv[3:]]).returncode
    (here / "hook_code").write_text(str(code))
    if code == 0:
        (here / "job").write_text("ran")
    (here / "always").write_text("ran")  # a step with `if: always()`
"""

HOOK = """
    import os, pathlib, sys
    from bridge.runner.actions.job_hook import AllowedWorkflow, decided, started
    digest, marker = sys.argv[1], sys.argv[2]
    pathlib.Path(marker).with_name("hook.pid").write_text(str(os.getpid()))
    allowed = (AllowedWorkflow("owner/repo", ".github/workflows/mac-bridge.yml", digest, ("refs/heads/*",)),)
    environ = {
        "GITHUB_WORKFLOW_REF": "owner/repo/.github/workflows/mac-bridge.yml@refs/heads/x",
        "GITHUB_WORKFLOW_SHA": "1" * 40,
    }
    stop = [sys.executable, "-c", f"open({marker!r}, 'w').write('stopped')"]
    decision = started(decided(environ, allowed, lambda facts: b"name: mac-bridge\\n"), stop)
    sys.exit(0 if decision.accepted else 1)
"""


def run_worker(tmp_path: Path, digest: str, program: str = HOOK) -> subprocess.Popen[bytes]:
    """Start a stand-in for the Actions worker: it calls the hook, then goes on as the real one would."""
    worker, hook = tmp_path / "Runner.Worker", tmp_path / "hook.py"
    worker.write_text(textwrap.dedent(WORKER))
    hook.write_text(textwrap.dedent(program))
    root = str(Path(__file__).resolve().parents[3])
    return subprocess.Popen(
        [sys.executable, str(worker), str(tmp_path), str(hook), digest, str(tmp_path / "service")],
        env={"PYTHONPATH": root},
    )


def gone(pid: int) -> bool:
    """Whether a process has ended; who collects it may come late."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_after_a_refusal_nothing_else_of_the_job_starts(tmp_path: Path) -> None:
    worker = run_worker(tmp_path, "0" * 64)
    assert worker.wait(PATIENCE_S) == -9
    for name in ("step.pid", "hook.pid"):
        pid = int((tmp_path / name).read_text())
        until(lambda pid=pid: gone(pid), why=f"it goes on: {name}")
    assert (tmp_path / "service").read_text() == "stopped"
    assert not (tmp_path / "always").exists()
    assert not (tmp_path / "job").exists()


# What `systemctl stop` does to the hook, which is of the unit as well: it kills every process of it, and says when.
UNIT_KILLER = """
import os, signal, sys, time
from pathlib import Path
import psutil
here = Path(sys.argv[1])
(here / "environment").write_text("\\n".join(sorted(os.environ)))
pid = int((here / "worker.pid").read_text())
alive = psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
(here / "service").write_text("worker alive" if alive else "worker dead")
os.kill(os.getppid(), signal.SIGKILL)
"""


def test_a_service_manager_that_kills_the_hook_finds_the_worker_dead(tmp_path: Path) -> None:
    stop = tmp_path / "stop.py"
    stop.write_text(UNIT_KILLER)
    hook = HOOK.replace(
        """stop = [sys.executable, "-c", f"open({marker!r}, 'w').write('stopped')"]""",
        f"stop = [sys.executable, {str(stop)!r}, {str(tmp_path)!r}]",
    )
    assert hook != HOOK
    worker = run_worker(tmp_path, "0" * 64, hook)
    assert worker.wait(PATIENCE_S) == -9
    until(lambda: (tmp_path / "service").exists() and (tmp_path / "service").read_text())

    assert (tmp_path / "service").read_text() == "worker dead"
    assert "PYTHONPATH" not in (tmp_path / "environment").read_text().split()
    assert not (tmp_path / "always").exists()
    assert not (tmp_path / "job").exists()


def test_a_trusted_workflow_goes_on_as_before(tmp_path: Path) -> None:
    worker = run_worker(tmp_path, hashlib.sha256(WORKFLOW).hexdigest())
    try:
        assert worker.wait(PATIENCE_S) == 0
        assert (tmp_path / "job").read_text() == "ran"
        assert not (tmp_path / "service").exists()
    finally:
        os.kill(int((tmp_path / "step.pid").read_text()), signal.SIGKILL)


def test_the_cleanup_hook_empties_what_the_job_left_and_follows_no_link(tmp_path: Path) -> None:
    workspace, temp, outside = tmp_path / "w", tmp_path / "t", tmp_path / "kept"
    for folder in (workspace / "deep", temp, outside):
        folder.mkdir(parents=True)
    (outside / "file").write_text("mine")
    (workspace / "link").symlink_to(outside)
    (workspace / "deep" / "x").write_text("x")
    make_deep(workspace / "deep")
    assert completed({"GITHUB_WORKSPACE": str(workspace), "RUNNER_TEMP": str(temp)}) == (workspace, temp)
    assert list(workspace.iterdir()) == []
    assert (outside / "file").read_text() == "mine"
