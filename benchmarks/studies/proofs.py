"""Sentences of the issue on the executor that tests show: which ones, and how they ended on a quiet machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

SUPERVISOR = "tests/integration/executor/test_supervisor.py"
RUN_UNIT = "tests/integration/executor/test_run_unit.py"
KILLED = "tests/integration/executor/test_killed_from_outside.py"
CRASHES = "tests/integration/runner/test_crashes.py"
SERVE = "tests/integration/runner/test_serve.py"
PROOFS: dict[str, tuple[str, ...]] = {
    "a sandbox under each protection of the units": ("tests/integration/setup/test_units.py",),
    "a run behind a service manager's socket": (RUN_UNIT,),
    "runs of an ordinary user as users of its range": ("tests/integration/executor/test_own_users.py",),
    "kill between journalled and started": (CRASHES, "-k", "prepared or started or left_running"),
    "kill -9 of the supervisor, sandbox killed, OOM": (KILLED, SUPERVISOR, RUN_UNIT, "-k", "killed"),
    "the package replaced in mid-run": (SUPERVISOR, "-k", "needs_none_of_its_files"),
    "restart by systemctl and launchctl": ("-m", "slow", "tests/integration/setup/test_restarts.py"),
    "stop, stop --runs, drain, drain --now": (SERVE, "-k", "restarted or stop or drain"),
}
"""What to give pytest, by what it shows."""


def run(case: str) -> list[Row]:
    """Run the tests of one sentence.

    Raises:
        RuntimeError: one failed.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *PROOFS[case]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-4000:])
    return [{"outcome": done.stdout.splitlines()[-1]}]


def cases() -> Sequence[str]:
    """Return the sentences."""
    return tuple(PROOFS)


STUDY = Study("proofs", "Do the tests of each ending and of the units pass?", cases, run)
