"""Each preset of `examples/` over a runner that was set up and serves as the README prints it, from a second clone.

The host's clone builds the example and allows it; the requester's clone is told the runner's key, runs the preset and
verifies the result.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

PRESETS: Final = {
    "line-fit": "line-fit",
    "checks": "checks",
    "two-sums": "two-sums",
    "c-sums": "takes-turns",
    "py-words": "takes-turns",
}
"""Each preset with the folder below `examples/` that offers it."""
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


def cases() -> Sequence[str]:
    """Return the presets."""
    return tuple(PRESETS)


def run(preset: str) -> list[Row]:
    """Serve one example and run its preset once.

    Raises:
        RuntimeError: a step of the set-up failed, or the run came to no end.
    """
    with tempfile.TemporaryDirectory(prefix="kakeya-examples-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        route = place / "route.git"
        subprocess.run(["git", "init", "-q", "--bare", str(route)], check=True)
        host, requester = (_person(place / who) for who in ("host", "requester"))
        with _served(host, route, PRESETS[preset]) as key:
            _well(requester.do(f"kakeya-mac init --bus {route} --runner-key {key}"))
            asked = requester.do(f"kakeya-mac run {preset} --wait --json")
            try:
                document = json.loads(asked.stdout)
            except ValueError:
                raise RuntimeError(f"{asked.stdout[-1000:]}{asked.stderr[-2000:]}") from None
            verified = requester.do(f"kakeya-mac verify {document['id']}")
    return [
        {
            "preset": preset,
            "exit_code": asked.returncode,
            "reason": document["outcome"]["reason"],
            "claims": [f"{one['decision']}: {one['wording']}" for one in document["claims"]],
            "verify": verified.returncode,
            "verified": (verified.stdout.splitlines() or [""])[0],
        }
    ]


@contextmanager
def _served(host: Person, route: Path, example: str) -> Iterator[str]:
    """Set a runner up that offers an example, and yield its name and key while it serves."""
    folder = host.clone / "examples" / example
    if (folder / "Makefile").exists():
        subprocess.run(["make", "-s"], cwd=folder, check=True)
    if example == "checks":  # its workload.toml names this environment: a Python with pytest
        (folder / ".venv").symlink_to(sys.prefix)
    _well(host.do(f"kakeya-runner setup --bus {route} --create-bus"))
    _well(host.do(f"kakeya-runner workload allow {folder}"))
    said = host.home / "said.txt"
    with said.open("wb") as stream:
        served = subprocess.Popen(
            ["kakeya-runner", "serve", "--bus", str(route)],
            cwd=host.clone, env=host.environment, stdout=stream, stderr=stream,
        )  # fmt: skip
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not _SERVES.search(said.read_text()):
            if served.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"it does not serve: {said.read_text()[-2000:]}")
            time.sleep(0.2)
        key = _KEY.search(host.do(f"kakeya-runner doctor --bus {route}").stdout)
        if key is None:
            raise RuntimeError("doctor names no key to pin")
        yield key[1]
    finally:
        served.terminate()
        served.wait(timeout=PATIENCE_S)


def _person(place: Path) -> Person:
    clone, home = place / "kakeya", place / "home"
    home.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    return Person(clone, home)


def _well(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(done.args)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


STUDY = Study("served-examples", "Does every example run over a runner that is really served?", cases, run)
