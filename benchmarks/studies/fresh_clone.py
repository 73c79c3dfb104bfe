"""What a new user's commands cost in a fresh clone: installation apart, then the command itself."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

MAX_S = 3600.0
ENVIRONMENTS = {"demo": ".venv/.demo", "unit": ".venv/.dev", "test": ".venv/.dev"}
"""The commands, and the target that makes the environment of each."""


def cases() -> Sequence[str]:
    """Return the commands as a user types them."""
    return [f"make {target}" for target in ENVIRONMENTS]


def run(case: str) -> list[Row]:
    """Clone this commit, make the environment, run the command.

    Returns:
        One row: seconds of the wall and of all processors for both steps, and what the command printed last.

    Raises:
        RuntimeError: the command failed or took longer than MAX_S.
    """
    target = case.split()[1]
    with tempfile.TemporaryDirectory(prefix="kakeya-clone-") as folder:
        clone = Path(folder) / "kakeya"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        installed = _spend(["make", ENVIRONMENTS[target]], clone)
        ran = _spend(["make", target], clone)
    return [{f"install_{key}": installed[key] for key in ("wall_s", "processor_s")} | ran]


def _spend(command: Sequence[str], folder: Path) -> Row:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=MAX_S, check=False
    )
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-2000:]}")
    spent_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {
        "wall_s": round(wall_s, 1),
        "processor_s": round(spent_s, 1),
        "outcome": (done.stdout.strip().splitlines() or [""])[-1],
    }


STUDY = Study("fresh-clone", "What do the README's commands cost in a fresh clone?", cases, run)
