"""A runner that was set up and serves as the README prints it, and a requester with a clone and a home of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.studies.report import ROOT

PATIENCE_S: Final = 120.0
_SERVES: Final = re.compile(r"runner \S+ serves")
_KEY: Final = re.compile(r"pinned as (\S+=\S+)")


@dataclass(frozen=True)
class Person:
    """Somebody with a clone and a home of their own."""

    clone: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a shell of theirs has after `. .venv/bin/activate`."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {"PATH": path, "HOME": str(self.home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def do(self, line: str) -> subprocess.CompletedProcess[str]:
        """Do a command as it is printed, in their clone."""
        return subprocess.run(
            line.split(), cwd=self.clone, env=self.environment, capture_output=True, text=True, check=False
        )

    def asked(self, line: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code of a request and its document.

        Raises:
            RuntimeError: it printed none.
        """
        done = self.do(line)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            raise RuntimeError(f"{done.stdout[-1000:]}{done.stderr[-2000:]}") from None


def person(place: Path) -> Person:
    """Return somebody who has just cloned this repository below a folder."""
    clone, home = place / "kakeya", place / "home"
    home.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    return Person(clone, home)


def well(done: subprocess.CompletedProcess[str]) -> None:
    """Check that a command succeeded.

    Raises:
        RuntimeError: with what it said.
    """
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(done.args)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


@contextmanager
def served(host: Person, route: Path, workload: Path | None = None) -> Iterator[str]:
    """Set a runner up, let it offer a workload where one is named, and yield its name and key while it serves.

    Raises:
        RuntimeError: a step of the set-up failed.
    """
    subprocess.run(["git", "init", "-q", "--bare", str(route)], check=True)
    well(host.do(f"kakeya-runner setup --bus {route} --create-bus"))
    if workload is not None:
        well(host.do(f"kakeya-runner workload allow {workload}"))
    said = host.home / "said.txt"
    with said.open("wb") as stream:
        serving = subprocess.Popen(
            ["kakeya-runner", "serve", "--bus", str(route)],
            cwd=host.clone, env=host.environment, stdout=stream, stderr=stream,
        )  # fmt: skip
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not _SERVES.search(said.read_text()):
            if serving.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"it does not serve: {said.read_text()[-2000:]}")
            time.sleep(0.2)
        key = _KEY.search(host.do(f"kakeya-runner doctor --bus {route}").stdout)
        if key is None:
            raise RuntimeError("doctor names no key to pin")
        yield key[1]
    finally:
        host.do("kakeya-runner stop --runs")  # a run outlives its runner, and what was interrupted wants none
        serving.terminate()
        serving.wait(timeout=PATIENCE_S)
