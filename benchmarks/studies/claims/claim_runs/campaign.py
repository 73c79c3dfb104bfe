"""`kakeya-mac run k3-fused-allmlx-code --profile claim`, twice at each load, each by an embedded runner of its own.

A case is at most 15 minutes long. Its result is packed into docs/evidence, and its row names the key that signed it:
what is quotable there, whoever pins that key can find out by `kakeya-mac gate check`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.studies.claims.claim_runs.figures import LOADS, agreement, at_load
from benchmarks.studies.claims.claim_runs.load import loaded
from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.client.clone.packed import SUFFIX, read_packed
from bridge.gate.facts.launch_series import load_of
from bridge.gate.interface import Evidence
from bridge.records.jobspec import JobSpec
from bridge.records.run import RunRecord
from bridge.records.verdict import Verdict
from bridge.run.stop_rule import finished

PRESET: Final = "k3-fused-allmlx-code"
KEPT: Final = ROOT / "docs" / "evidence"
RUNS: Final = 2
_MAX_BYTES: Final = 1 << 26


def cases() -> tuple[str, ...]:
    """Return the runs, one at each load before the second at any."""
    return tuple(f"run {number} at {load} % load" for number in range(1, RUNS + 1) for load in LOADS)


def run(case: str, profile: str = "claim", results: Path = KEPT) -> list[Row]:
    """Send one request, keep its result, and return what it came to.

    Raises:
        RuntimeError: it left no verdict.
    """
    load = int(case.removesuffix(" % load").rpartition(" ")[2])
    with tempfile.TemporaryDirectory(prefix="kakeya-claim-run-") as name:
        folder, began = Path(name), time.monotonic()
        clone = folder / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        with loaded(load / 100):
            code = kakeya_mac(folder, "run", PRESET, "--profile", profile, "--wait").returncode
        took_s = time.monotonic() - began
        opened = kakeya_mac(folder, "open", "@last")
        tree = clone / opened.stdout.strip()
        if opened.returncode or not (tree / "verdict.json").is_file():
            raise RuntimeError(f"{case}: exit code {code}, no verdict: {opened.stderr[-500:]}")
        packed = results / f"claim-{case.replace(' % ', ' ').replace(' ', '-')}{SUFFIX}"
        kakeya_mac(folder, "fetch", "@last", "--pack", str(packed)).check_returncode()
        pin = pin_of(folder)
    return [claim_run_row(packed) | {"run": case, "load": load, "exit": code, "took_s": round(took_s, 1), "pin": pin}]


def kakeya_mac(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `kakeya-mac` in the clone of a study's folder, with the state that lies beside the clone."""
    return subprocess.run(
        argv_of(*words), cwd=folder / "clone", env=environment_of(folder), capture_output=True, text=True, check=False
    )


def argv_of(*words: str) -> list[str]:
    """Return the command line of this checkout's `kakeya-mac`."""
    return [str(Path(sys.executable).with_name("kakeya-mac")), *words]


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment in which `kakeya-mac` keeps its state in a study's folder."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("KAKEYA_")},
        "KAKEYA_DATA_DIR": str(folder / "data"),
        "KAKEYA_CONFIG_DIR": str(folder / "config"),
    }


def pin_of(folder: Path) -> str:
    """Return the key of the runner as readers pin it."""
    (path,) = (folder / "data").glob("embedded/*/runner/runner.keys.json")
    (record,) = json.loads(path.read_text("utf-8"))
    return f"{record['name']}={record['public']}"


def claim_run_row(packed: Path) -> dict[str, Any]:
    """Return what a result says: class and interval of each claim, launches, load as the runner saw it."""
    files = read_packed(packed).files
    verdict, record, spec = (
        kind.parse(files[name], max_bytes=_MAX_BYTES)
        for kind, name in ((Verdict, "verdict.json"), (RunRecord, "run.json"), (JobSpec, "spec.json"))
    )
    (plan,) = (command.launches for command in spec.commands if command.launches is not None)
    load_seen = load_of(Evidence(reports=(), record=record, spec=spec, profile={}))
    speed = next((claim for claim in verdict.claims if claim.id == "decode_speedup"), None)
    return {
        "id": verdict.id,
        "decision": verdict.decision,
        "claims": {
            claim.id: {"value": claim.value, "interval": claim.interval, "decision": claim.decision, "why": claim.why}
            for claim in verdict.claims
        },
        "logs": [[round(launch.log_ratio, 6), launch.block] for launch in finished(plan, record.launches)],
        "launch_sd": None if speed is None else speed.detail.get("launch_sd"),
        "half_width": None if speed is None else speed.detail.get("half_width"),
        "ended": None if speed is None else speed.detail.get("ended"),
        "others_share": None if load_seen is None else round(load_seen, 3),
        "wall_s": round(record.wall_s, 1),
    }


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return what the runs at each load came to, and whether two of one load agree."""
    rows = rows_of(entries)
    lines = [*(at_load(rows, load) for load in LOADS), agreement(rows)]
    return [line for line in lines if line is not None]


STUDY = Study(
    "claim-runs",
    "What may be quoted of a claim run at 0, 25 and 50 % load?",
    cases,
    run,
    "three quarters of an hour",
    summary,
)
