"""A run that confirms an earlier one, end to end on this machine's bus: what its number says, and what is refused.

Two presets time the same two builds of `examples/two-sums`: the second question is the best of two looks, and the run
that was begun to confirm it is none. Counts and words are the result, no seconds.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.studies.ratios import kakeya, stop_runner
from benchmarks.studies.report import ROOT
from benchmarks.studies.study import Row, Study

CONFIRMED, REFUSED = "confirmed", "refused"
_WORKLOAD: Final = """schema = 1
name = "two-sums"

[presets.first-look]
description = "Time two builds by turns"
limits.wall_s = 300.0

[presets.second-look]
description = "Time two builds by turns, another question"
limits.wall_s = 300.0

[metrics.speedup]
ratio = { baseline = ["old"], candidate = ["new"] }
"""
_STRANGER: Final = "01jd7zk3v8q4w2m6x9c5b7n1t0"
REFUSALS: Final = {
    "a run of a smoke profile": ("first-look", "--profile", "claim", "--confirms", "@last"),
    "a run of another question": ("second-look", "--profile", "claim", "--confirms", "@last"),
    "in the smoke profile": ("first-look", "--profile", "smoke", "--confirms", "@last"),
    "a run that nobody knows": ("first-look", "--profile", "claim", "--confirms", _STRANGER),
    "by several runs at once": ("first-look", "--profile", "claim", "--confirms", "@last", "--repeat", "2"),
}
"""What may not be confirmed, by the words that ask for it after a smoke run of the first question."""


def cases() -> tuple[str, ...]:
    """Return what is tried."""
    return CONFIRMED, REFUSED


def run(case: str) -> list[Row]:
    """Try one case and return what each of its runs said."""
    with _offered() as place:
        if case == REFUSED:
            _asked(place, "first-look", "--profile", "smoke")
            return [_refused(place, why, words) for why, words in REFUSALS.items()]
        looks = [_asked(place, name, "--profile", "claim") for name in ("first-look", "second-look")]
        return [*looks, _asked(place, "second-look", "--profile", "claim", "--confirms", "@last")]


def summary(found: list[Row]) -> str:
    """Return in a sentence what was confirmed, and what was refused."""
    looks = {row["asked"]: row for row in found if "looks" in row}
    refused = [row for row in found if "refused" in row]
    said = [f"{name}: look {row['looks']}, attempt {row['number']}, {row['decision']}" for name, row in looks.items()]
    closed = sum(row["refused"] for row in refused)
    return f"{'; '.join(said)}; {closed} of {len(refused)} runs that can confirm nothing are refused"


@contextmanager
def _offered() -> Iterator[Path]:
    """Build the example, allow both presets, and end the runner afterwards."""
    with tempfile.TemporaryDirectory(prefix="kakeya-confirming-", ignore_cleanup_errors=True) as name:
        place, folder = Path(name), Path(name) / "two-sums"
        place.chmod(0o755)
        shutil.copytree(ROOT / "examples" / "two-sums", folder, ignore=shutil.ignore_patterns("old", "new"))
        (folder / "workload.toml").write_text(_WORKLOAD)
        subprocess.run(["make", "-s"], cwd=folder, check=True)
        subprocess.run(["chmod", "-R", "go-w,a+rX", str(folder)], check=True)
        kakeya(place, "runner", place, "workload", "allow", str(folder))
        try:
            yield place
        finally:
            stop_runner(place)


def _asked(place: Path, preset: str, *words: str) -> Row:
    """Run to the end and return how it was counted.

    Raises:
        RuntimeError: it did not pass.
    """
    done = kakeya(place, "mac", place, "run", preset, *words, "--wait", "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    if document["outcome"]["reason"] != "passed":
        raise RuntimeError(f"{preset}: {document['outcome']}: {done.stderr[-500:]}")
    folder = Path(kakeya(place, "mac", place, "open", "@last").stdout.strip())
    attempt = json.loads((folder / "run.json").read_text())["attempt"]
    (claim,) = document["claims"]
    return {
        "asked": " ".join((preset, *words)),
        "decision": claim["decision"],
        "wording": claim["wording"],
        "missing": [one["premise"] for one in claim["premises"] if not one["held"]],
    } | {name: attempt.get(name) for name in ("number", "looks", "confirms")}


def _refused(place: Path, why: str, words: tuple[str, ...]) -> Row:
    """Ask for what may not be, and return whether anything was measured."""
    done = kakeya(place, "mac", place, "run", *words, "--wait", "--json")
    said = done.stdout + done.stderr
    measured = '"decision": "evidence"' in said or '"decision": "valid"' in said
    last = next((line for line in reversed(said.strip().splitlines()) if "error" in line or "confirm" in line), "")
    return {"asked": why, "exit_code": done.returncode, "refused": done.returncode != 0 and not measured, "said": last}


STUDY = Study("confirmations", "What does a run say that was begun to confirm another?", cases, run)
