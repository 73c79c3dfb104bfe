"""Sittings of two copies of one small program, one a case and one after another: what standing claims make of none.

A sitting is five launches under the real supervisor, as one of a standing claim is, without the ten minutes between
two: that is this study's alone, and nobody quotes a number of it. Eight sittings in a row are a claim; whether the
ninth lies where they say that it will is looked at along all of them.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.studies.claims.equal_arms.campaign import execute_series
from benchmarks.studies.study import Entry, Row, Study, rows_of
from bridge.launches.attempts import ShownInterval
from bridge.launches.estimate import Launch, over_launches
from bridge.launches.pair_program import SEPARATOR
from bridge.launches.standing import Sitting, standing_ratio
from bridge.launches.stopping import SITTING_LAUNCHES
from bridge.launches.wording import effect
from bridge.presets.workloads.folder import pair_program
from bridge.records.turns import LaunchSeries, StopRule
from bridge.run.stop_rule import finished

SITTINGS: Final = 40
OF_A_CLAIM: Final = 8
ARMS: Final = ("baseline", "candidate")
PLAN: Final = LaunchSeries(
    arms=ARMS, rule=StopRule(least=SITTING_LAUNCHES, most=SITTING_LAUNCHES), unit="samples", solo_s=0.0
)
NUMBERS: Final = 4_000_000
"""So many additions take about 0.3 s."""
PROGRAM: Final = "import sys\ntotal = 0\nfor number in range(int(sys.argv[1])):\n    total += number\n"


def cases() -> tuple[str, ...]:
    """Return the names of the sittings."""
    return tuple(f"sitting {number} of {SITTINGS}" for number in range(1, SITTINGS + 1))


def run(case: str, plan: LaunchSeries = PLAN, numbers: int = NUMBERS) -> list[Row]:
    """Measure one sitting and return its launches.

    Raises:
        RuntimeError: it did not come to its end.
    """
    folder, load = Path(tempfile.mkdtemp(prefix="kakeya-equal-sittings-")), os.getloadavg()[0]
    folder.chmod(0o755)  # a root's jobs are another user's
    try:
        argv: list[str] = [sys.executable, "-I", "-S", str(pair_program())]
        for arm in ARMS:
            copy = folder / f"{arm}.py"
            copy.write_text(PROGRAM, encoding="utf-8")
            argv += [f"{SEPARATOR}{arm}", sys.executable, "-I", "-S", str(copy), str(numbers)]
        began_s = time.time()
        ended = execute_series("equal-sittings", tuple(argv), plan)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not ended.ok or ended.ending != "exited" or ended.program_exit != 0:
        raise RuntimeError(f"{case}: {ended.ending}, exit {ended.program_exit}: {ended.log.decode('utf-8')[-1500:]}")
    logs = [round(launch.log_ratio, 6) for launch in finished(plan, ended.launches)]
    turns = [turn.done_s - turn.go_s for launch in ended.launches for turn in launch.turns]
    return [
        {
            "sitting": case, "logs": logs, "began_s": round(began_s, 1), "ended_s": round(time.time(), 1),
            "load": round(load, 2), "turn_s": round(sum(turns) / len(turns), 3),
        }
    ]  # fmt: skip


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return what the sittings say by themselves, eight by eight, and of the next one each."""
    rows = sorted(rows_of(entries), key=lambda row: float(row["began_s"]))
    alone = [over_launches([Launch(log_ratio) for log_ratio in row["logs"]]) for row in rows]
    apart = sum(ratio is not None and not _holds(ShownInterval.of(ratio), 1.0) for ratio in alone)
    lines = [f"{apart} of {len(rows)} sittings exclude 1 by their five launches alone"]
    sittings = [
        Sitting(number, math.fsum(row["logs"]) / len(row["logs"]), row["began_s"], row["ended_s"])
        for number, row in enumerate(rows, 1)
    ]
    words, widths, missed = [], [], 0
    for first in range(0, len(sittings) - OF_A_CLAIM + 1, OF_A_CLAIM):
        ratio = standing_ratio(sittings[first : first + OF_A_CLAIM])
        if ratio is not None:
            bounds = ratio.bounds()
            missed += not _holds(bounds, 1.0)
            words.append(effect(bounds))
            widths.append(bounds.half_width)
    if words:
        listed = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        widest = f"half-widths {min(widths) * 100:.1f} to {max(widths) * 100:.1f} %"
        lines.append(f"{missed} of {len(words)} claims of {OF_A_CLAIM} sittings exclude 1: {listed}; {widest}")
    inside = [
        _holds(ratio.ends[0].next_sitting(), math.exp(following.log_ratio))
        for place, following in enumerate(sittings[OF_A_CLAIM:])
        if (ratio := standing_ratio(sittings[place : place + OF_A_CLAIM])) is not None
    ]
    if inside:
        lines.append(f"{sum(inside)} of {len(inside)} sittings lie where the {OF_A_CLAIM} before them predict")
    return lines


def _holds(bounds: ShownInterval, ratio: float) -> bool:
    return bounds.low <= ratio <= bounds.high


STUDY = Study(
    "equal-sittings",
    "What do sittings of a program and its copy say, alone, eight together, and of the next one?",
    cases,
    run,
    "about 40 minutes",
    summary,
)
