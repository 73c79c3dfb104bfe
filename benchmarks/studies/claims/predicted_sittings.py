"""Ten sittings of one standing claim, the last four at loads drawn after the first six have said where they will lie.

Each is a sitting of `kakeya-mac run k3-fused-allmlx-code --profile standing --sittings 10`, in a clone of its own below
`build`, begun ten minutes after the one before it; a load program keeps a share of every processor busy meanwhile. The
runner begins one by itself where this program comes late: nobody holds the load of that one, and its row says so. All
ten are packed into docs/evidence, where whoever pins their key quotes them together. What runs is the engine of the
checkout that this is started in: where that changes between two sittings they are of two questions and no claim, so a
commit, or an edit, ends the study. Run it in a checkout that is left alone.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.studies.claims.claim_runs.campaign import (
    argv_of,
    claim_run_row,
    environment_of,
    kakeya_mac,
    pin_of,
)
from benchmarks.studies.claims.claim_runs.load import loaded
from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.client.clone.packed import SUFFIX
from bridge.ids import short
from bridge.launches.attempts import ShownInterval
from bridge.launches.standing import at_loads, over_sittings
from bridge.system.clock import parse_rfc3339

PRESET: Final = "k3-fused-allmlx-code"
KEPT: Final = ROOT / "docs" / "evidence" / "standing"
FOLDER: Final = ROOT / "build" / "predicted-sittings"
FIRST: Final = (0, 50, 25, 50, 25, 0)
"""Load of each sitting that predicts, in percent of every processor."""
LOADS: Final = (0, 25, 50)
DRAWN: Final = 4
SITTINGS: Final = len(FIRST) + DRAWN
WANTED_HALF_WIDTH: Final = 0.08
_LEAD_S: Final = 15.0
_SITTING_S: Final = 900.0


def cases() -> tuple[str, ...]:
    """Return the names of the sittings in the order they run."""
    return tuple(f"sitting {number} of {SITTINGS}" for number in range(1, SITTINGS + 1))


def run(case: str, folder: Path = FOLDER, results: Path = KEPT) -> list[Row]:
    """Wait until the sitting may begin, let the client run it, and keep its result.

    Raises:
        RuntimeError: it left no result, or ran another commit than the first sitting did.
    """
    number = int(case.split()[1])
    if number > 1 and (now := _code(ROOT)) != (then := _code(folder / "clone")):
        raise RuntimeError(f"{case}: the engine here is {now}, that of the sittings before it {then}; begin anew")
    load: int | None = FIRST[number - 1] if number <= len(FIRST) else random.SystemRandom().choice(LOADS)
    if not (folder / "clone").is_dir():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(folder / "clone")], check=True)
    results.mkdir(parents=True, exist_ok=True)
    packed = results / f"sitting-{number:02}{SUFFIX}"
    if _packed(folder, number, packed):
        load = None
    else:
        time.sleep(max(0.0, next_at_s(folder) - time.time() - _LEAD_S))
        with loaded((load or 0) / 100):
            _sit(folder, number)
        if not _packed(folder, number, packed):
            raise RuntimeError(f"{case} left no result within {_SITTING_S:.0f} s")
    row = claim_run_row(packed) | {"sitting": number, "load": load, "file": packed.name, "pin": pin_of(folder)}
    if number == len(FIRST):
        rows = [claim_run_row(results / f"sitting-{earlier:02}{SUFFIX}") for earlier in range(1, number + 1)]
        row["predicts"] = {str(at): predicted(rows, at / 100.0) for at in LOADS}
    return [row]


def next_at_s(folder: Path) -> float:
    """Return when the next sitting may begin, seconds since 1970; 0 before the first."""
    for path in (folder / "data").glob("embedded/*/runner/state.sqlite"):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            (latest,) = database.execute("SELECT max(not_before) FROM queue").fetchone()
        if latest is not None:
            return parse_rfc3339(str(latest)).astimezone(dt.UTC).timestamp()
    return 0.0


def predicted(rows: Sequence[Row], load: float) -> tuple[float, float]:
    """Return where the next sitting's ratio will lie at a load, by the sittings so far.

    Args:
        rows: of the sittings.
        load: share of the machine that others will use.
    """
    (end,) = at_loads([_mean(row) for row in rows], [float(row["others_share"]) for row in rows], (load,))
    bounds = end.next_sitting()
    return bounds.low, bounds.high


def _mean(row: Row) -> float:
    logs = [log_ratio for log_ratio, _ in row["logs"]]
    return math.fsum(logs) / len(logs)


def _code(checkout: Path) -> str:
    """Return the commit of a checkout, and whether anything but its evidence was edited."""
    words = ("git", "-C", str(checkout), "describe", "--always", "--abbrev=40", "--exclude=*")
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    changed = ("git", "-C", str(checkout), "status", "--porcelain", "--", ".", ":(exclude)docs/evidence")
    edited = subprocess.run(changed, capture_output=True, text=True, check=True).stdout.strip()
    return f"{commit}, edited" if edited else commit


def _run_of(folder: Path, number: int) -> str | None:
    """Return the id of a sitting's run; None before it was sent. They begin in the order they were sent."""
    sent = sorted(path.stem for path in (folder / "clone" / ".git" / "kakeya" / "requests").glob("*.json"))
    return sent[number - 1] if number <= len(sent) else None


def _packed(folder: Path, number: int, packed: Path) -> bool:
    """Keep a sitting's result where it has ended; return whether it has."""
    run_id = _run_of(folder, number)
    return run_id is not None and kakeya_mac(folder, "fetch", run_id, "--pack", str(packed)).returncode == 0


def _sit(folder: Path, number: int) -> None:
    """Let the client wait until a sitting has its result, or for so long as one may take."""
    argv = argv_of("run", PRESET, "--profile", "standing", "--sittings", str(SITTINGS), "--wait")
    client = subprocess.Popen(
        argv, cwd=folder / "clone", env=environment_of(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    ends, runs = time.monotonic() + _SITTING_S, folder / "clone" / ".git" / "kakeya" / "runs"
    try:
        while time.monotonic() < ends and client.poll() is None:
            run_id = _run_of(folder, number)
            if run_id is not None and (runs / short(run_id) / "attestation.dsse.json").is_file():
                return
            time.sleep(1.0)
    finally:
        client.send_signal(signal.SIGINT)  # it detaches and cancels nothing
        client.wait(60.0)


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return what the first sittings predict, and whether each later one lies there."""
    rows = sorted(rows_of(entries), key=lambda row: int(row["sitting"]))
    first, later = rows[: len(FIRST)], rows[len(FIRST) :]
    if len(first) < len(FIRST):
        return [f"{len(first)} of {len(FIRST)} sittings that predict"]
    means = [_mean(row) for row in first]
    lines = []
    for load in LOADS:
        low, high = predicted(first, load / 100.0)
        lines.append(f"at {load} % load the next sitting within {low:.3f} to {high:.3f}, {_width(low, high)}")
    alone = over_sittings(means).next_sitting()
    lines.append(f"without the load: {alone.low:.3f} to {alone.high:.3f}, {_width(alone.low, alone.high)}")
    inside = 0
    for row in later:
        low, high = predicted(first, float(row["others_share"]))
        ratio = math.exp(_mean(row))
        inside += low <= ratio <= high
        drawn = "no load held" if row["load"] is None else f"{row['load']} % drawn"
        shown = f"sitting {row['sitting']}, {drawn}, {row['others_share'] * 100:.0f} % seen: {ratio:.3f}"
        lines.append(f"{shown} {'inside' if low <= ratio <= high else 'OUTSIDE'} {low:.3f} to {high:.3f}")
    return [*lines, f"{inside} of {len(later)} inside"]


def _width(low: float, high: float) -> str:
    half = ShownInterval(math.sqrt(low * high), low, high).half_width
    return (
        f"half-width {half * 100:.1f} % ({'within' if half <= WANTED_HALF_WIDTH else 'over'} {WANTED_HALF_WIDTH:.0%})"
    )


STUDY = Study(
    "predicted-sittings",
    "Does a sitting at a load drawn later lie where six sittings say that it will?",
    cases,
    run,
    "an hour and three quarters",
    summary,
)
