"""Planted differences of two programs, found by the ratio of a workload: a case is a real run on this machine's bus.

The compiled benchmark of `examples/two-sums` with a slow-down of a tenth, with none, and with a baseline that sleeps;
then two commits of a toy project by ``--against``, one slower by a tenth and one that changes nothing but a comment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

RUNS: Final = 3
KINDS: Final = ("slower", "identical", "sleeping", "commit slower", "commit identical")
SAID: Final = {
    "slower": ("slower",),
    "identical": ("no difference shown", "not slower (5 %)", "equivalent within 5 %"),
    "sleeping": ("times",),
}
_SLEEPS: Final = "#include <unistd.h>\nint main(void) { return usleep(500000); }\n"
_TOY: Final = """schema = 1
name = "toy"

[presets.toy]
description = "Time bench.py of two commits"
limits.wall_s = 420.0

[metrics.speedup]
ratio = { commits = ["bench.py"] }
"""
_BENCH: Final = "total = 0\nfor number in range({rounds}):\n    total += number * number % 7\nprint(total)\n"
_ROUNDS: Final = 2_000_000  # half a second: beside it the start of an interpreter is short, so a tenth more is a tenth


def cases() -> list[str]:
    """Return each kind in turn, as often as it is run."""
    return [f"{kind} {number}" for number in range(1, RUNS + 1) for kind in KINDS]


def run(case: str) -> list[Row]:
    """Run one planted case and return what the gate said of it."""
    kind = case.rpartition(" ")[0]
    with tempfile.TemporaryDirectory(prefix="kakeya-ratios-", ignore_cleanup_errors=True) as name:
        place = Path(name)
        place.chmod(0o755)
        try:
            document = _of_commits(place, kind) if kind.startswith("commit") else _of_programs(place, kind)
        finally:
            stop_runner(place)
    (claim,) = document["claims"]
    missing = [one["premise"] for one in claim["premises"] if not one["held"]]
    effect = claim["detail"].get("effect")
    wanted = SAID[kind.removeprefix("commit ")]
    as_planted = missing == ["times"] if kind == "sleeping" else claim["decision"] == "evidence" and effect in wanted
    facts = {"effect": effect, "value": claim["value"], "interval": claim["interval"], "launches": claim["n"]}
    why = [line for one in claim["premises"] for line in one["why"]]
    return [
        {"kind": kind, "as_planted": as_planted, "decision": claim["decision"], "missing": missing, "why": why}
        | facts
        | {"exit_code": document["outcome"]["exit_code"]}
    ]


def _of_programs(place: Path, kind: str) -> dict[str, Any]:
    """Build the example, allow it and run it."""
    folder = place / "two-sums"
    shutil.copytree(ROOT / "examples" / "two-sums", folder, ignore=shutil.ignore_patterns("old", "new"))
    subprocess.run(["make", "-s", f"SLOW={int(kind == 'slower')}"], cwd=folder, check=True)
    if kind == "sleeping":
        (folder / "old.c").write_text(_SLEEPS)
        subprocess.run(["cc", "-o", "old", "old.c"], cwd=folder, check=True)
    subprocess.run(["chmod", "-R", "go-w", str(folder)], check=True)
    kakeya(place, "runner", place, "workload", "allow", str(folder))
    return _ran(place, place, "run", "two-sums")


def _of_commits(place: Path, kind: str) -> dict[str, Any]:
    """Commit a toy project twice, allow a workload that compares commits, and run it against the first."""
    folder, clone = place / "toy", place / "clone"
    folder.mkdir(mode=0o755)
    (folder / "workload.toml").write_text(_TOY)
    (folder / "workload.toml").chmod(0o644)
    kakeya(place, "runner", place, "workload", "allow", str(folder))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q", "-b", "main", str(clone)], check=True)
    slower = _BENCH.format(rounds=_ROUNDS + _ROUNDS // 10)
    for text in (
        _BENCH.format(rounds=_ROUNDS),
        slower if kind == "commit slower" else _BENCH.format(rounds=_ROUNDS) + "# the end\n",
    ):
        (clone / "bench.py").write_text(text)
        subprocess.run([*git, "add", "bench.py"], cwd=clone, check=True)
        subprocess.run([*git, "commit", "-q", "-m", "work"], cwd=clone, check=True)
    return _ran(place, clone, "run", "toy", "--ref", "HEAD", "--against", "HEAD~1", "--fail-if", "slower")


def _ran(place: Path, directory: Path, *words: str) -> dict[str, Any]:
    """Return the document of a run that was waited for.

    Raises:
        RuntimeError: it did not pass, or made no claim.
    """
    done = kakeya(place, "mac", directory, *words, "--wait", "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    if not document["claims"] or document["outcome"]["reason"] != "passed":
        log = kakeya(place, "mac", directory, "logs", "@last").stdout
        raise RuntimeError(f"{document['outcome']}: {done.stderr[-500:]} {log[-1000:]}")
    return document


def stop_runner(place: Path) -> None:
    """End the embedded runner, which would serve for another minute."""
    for folder in (place / "data").glob("embedded/*/runner"):
        kakeya(place, "runner", place, "stop", "--state", str(folder), "--runs")


def kakeya(place: Path, program: str, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Do a command of one of the two programs in a directory, with its data and settings below a place."""
    module = {"mac": "bridge.cli.mac.main", "runner": "bridge.cli.host.main"}[program]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KAKEYA_")}
    places = {"KAKEYA_DATA_DIR": str(place / "data"), "XDG_CONFIG_HOME": str(place / "config"),
              "KAKEYA_CONFIG_DIR": str(place / "config" / "kakeya"), "PYTHONPATH": str(ROOT)}  # fmt: skip
    argv = [sys.executable, "-m", module, *words]
    return subprocess.run(argv, cwd=directory, env=kept | places, capture_output=True, text=True, check=False)


STUDY = Study("ratios", "Is a planted slow-down of a tenth found, and nothing else?", cases, run)
