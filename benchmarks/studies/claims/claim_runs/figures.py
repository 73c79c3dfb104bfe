"""What the claim runs at each load came to, in words: what may be quoted, how wide, and whether two agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.studies.study import Row
from bridge.launches.estimate import Launch, over_launches
from bridge.launches.sittings import agree

LOADS: Final = (0, 25, 50)
"""Shares of the processors, in percent, that a load program computes for beside a run."""
ALLOWED_S: Final = 15 * 60.0
WANTED: Final = ("identical_prompts", "acceptance_length", "decode_speedup")
ABSOLUTE: Final = "baseline_tokens_per_s"
BLOCKS: Final = 5


def at_load(rows: Sequence[Row], load: int) -> str | None:
    """Return what the runs at a load came to, None before there is one."""
    mine = [row for row in rows if row["load"] == load]
    return "; ".join(_run(row) for row in mine) or None


def _run(row: Row) -> str:
    citable = [name for name in WANTED if row["claims"].get(name, {}).get("decision") == "evidence"]
    lacking = [name for name in WANTED if name not in citable]
    absolute = row["claims"].get(ABSOLUTE, {}).get("decision")
    text = f"citable {', '.join(citable) or 'nothing'}"
    text += f", not {', '.join(lacking)}" if lacking else ""
    text += f"; tokens/s {'CITABLE' if absolute == 'evidence' else 'not citable'}"
    if row["half_width"] is not None:
        low, high = row["claims"]["decode_speedup"]["interval"]
        sd = "unknown" if row["launch_sd"] is None else f"{row['launch_sd'] * 100:.1f} %"
        text += f"; ratio [{low:.2f}, {high:.2f}], half-width {row['half_width'] * 100:.1f} % at a launch sd of {sd}"
        text += f", {len(row['logs'])} launches ({row['ended']})"
    within = "within" if row["took_s"] <= ALLOWED_S else "NOT within"
    return f"{row['run']}: {text}; {row['took_s'] / 60:.1f} min, {within} 15"


def agreement(rows: Sequence[Row]) -> str | None:
    """Return whether the second run at each load agrees with the first, None before there are two of one load."""
    lines = []
    for load in LOADS:
        mine = [row for row in rows if row["load"] == load]
        estimates = [over_launches([Launch(log, block) for log, block in row["logs"]], BLOCKS) for row in mine]
        ratios = [estimate for estimate in estimates if estimate is not None]
        if len(ratios) > 1:
            lines.append(f"{load} %: {'agree' if agree(ratios[0], ratios[1]) else 'DIFFER'}")
    return "; ".join(lines) or None
