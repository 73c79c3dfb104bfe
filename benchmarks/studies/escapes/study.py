"""How many of some hundred ways out of the sandbox reach the host, as each kind of run?"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.studies.escapes.situations import SITUATIONS
from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study


def run(situation: str) -> list[Row]:
    """Try every probe in one situation; what reached the host is named.

    Raises:
        RuntimeError: a probe is broken.
    """
    found, files = SITUATIONS[situation]()
    broken = {name: said for name, said in found.items() if said and said.startswith("broken probe")}
    if broken:
        raise RuntimeError(f"broken probes: {broken}")
    reached = {name: said for name, said in found.items() if said is not None}
    return [{"situation": situation, "probes": len(found), "kernel_files": files, "reached": reached}]


def run_holes(words: str) -> list[Row]:
    """Dig holes into the sandbox and see that `doctor` and the probes find them.

    Raises:
        RuntimeError: one was not found.
    """
    return _pytest(FOLDER, "-k", words)


def run_two_users(file: str) -> list[Row]:
    """Set machines up with real users beneath an overlay, break them and undo it.

    Raises:
        RuntimeError: it did not go as it should.
    """
    return _pytest("-m", "slow", file)


def _pytest(*words: str) -> list[Row]:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-4000:])
    return [{"outcome": done.stdout.splitlines()[-1]}]


FOLDER = "tests/integration/executor"
HOLES = Study(
    "planted-holes", "Are holes in the sandbox found?", lambda: ["planted_hole or hole_that_was_dug"], run_holes
)
TWO_USERS = Study(
    "two-users",
    "Are the users of a set-up kept apart, is a broken one found, and does it all go again?",
    lambda: ["tests/integration/setup/test_two_users.py"],
    run_two_users,
)
STUDY = Study(
    "escapes", "Does a way out of the sandbox reach the host, as any kind of run?", lambda: list(SITUATIONS), run
)
