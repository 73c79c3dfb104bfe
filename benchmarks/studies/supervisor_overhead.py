"""From request to result, before runs had supervisors and now: both trees on one machine, run by run in turns.

Each tree serves a bus of its own with a real `kakeya-runner serve` and sends with a real `kakeya-mac run --wait`; its
overhead is the command's time less the seconds its program, which does nothing, ran.
"""

from __future__ import annotations

import random
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

BEFORE = "d09f126"
"""The last commit whose runs lived in their runner."""
RUNS: Final = {"before": "_run", "now": "run_once"}
"""What each tree's benchmark calls sending one run."""
BLOCKS = 5
TURNS = 8
ARM = """
import sys
from pathlib import Path
from benchmarks.overhead import {run}
from tests.support.runner_site import Site
site = Site(Path(sys.argv[1]))
try:
    site.create_bus()
    site.start("serve", "--bus", site.route)
    site.until(lambda: site.requester().read_beacons(), "the runner does not start")
    print({run}(site), flush=True)
    for _ in sys.stdin:
        print({run}(site), flush=True)
finally:
    for process in site.runners:
        process.terminate()
        process.wait(timeout=60)
"""


def cases() -> Sequence[str]:
    """Return the blocks."""
    return [f"block {number}" for number in range(BLOCKS)]


def run(case: str) -> list[Row]:
    """Run both trees in turns, each turn in a new random order, and return the seconds of each run.

    Raises:
        RuntimeError: a tree's run did not end.
    """
    order = random.Random(case)
    with tempfile.TemporaryDirectory(prefix="kakeya-study-") as name, ExitStack() as stack:
        folder = Path(name)
        before = folder / "before"
        _check_out(before)
        trees = {"before": before, "now": ROOT}
        arms = {
            arm: stack.enter_context(_arm(tree, ARM.format(run=RUNS[arm]), folder / f"{arm}-site"))
            for arm, tree in trees.items()
        }
        seconds: dict[str, list[float]] = {arm: [] for arm in arms}
        for _ in range(TURNS):
            for arm in order.sample(list(arms), len(arms)):
                seconds[arm].append(_turn(arms[arm]))
    return [{"arm": arm, "seconds": [round(one, 3) for one in found]} for arm, found in seconds.items()]


def _check_out(tree: Path) -> None:
    tree.mkdir()
    archive = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=tree, input=archive.stdout, check=True)


@contextmanager
def _arm(tree: Path, program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that runs one request for each line it is sent, after a first one that warms it up."""
    folder.mkdir(parents=True)
    python = _environment(tree, folder.with_name(f"{folder.name}-python"))
    with subprocess.Popen(
        [python, "-c", program, folder], cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        _read(process)
        yield process
        process.stdin.close()
        process.wait(timeout=120)


def _environment(tree: Path, folder: Path) -> Path:
    """Make an interpreter that finds a tree's packages first and everything else where this one does."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    (packages / "arm.pth").write_text(f"{tree}\n{sysconfig.get_paths()['purelib']}\n")
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    return python


def _turn(process: subprocess.Popen[str]) -> float:
    process.stdin.write("\n")
    process.stdin.flush()
    return _read(process)


def _read(process: subprocess.Popen[str]) -> float:
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("a tree's run did not end")
    return float(line)


STUDY = Study("supervisor-overhead", "Is a result there as soon as it was before runs had supervisors?", cases, run)
