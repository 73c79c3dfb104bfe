"""What is said of page recall: by target and task, each way to bound a cache beside the native one."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.studies import page_recall
from bridge.gate.stats.binomial import paired_difference_lower


def recall(entries: list[dict[str, Any]]) -> str:
    """Return by target and task how many codes native found, then of each arm codes, paired bound and saving."""
    told = []
    for target in page_recall.TARGETS:
        for task in page_recall.TASKS:
            arms = {
                arm: {row["prompt"]: row for row in _rows(entries, f"{target}, {task}, {arm}, ")}
                for arm in page_recall.ARMS
            }
            native = arms.pop("native")
            beside = [paired(arm, native, rows) for arm, rows in arms.items() if native.keys() & rows.keys()]
            if native:
                found = f"native {sum(row['found'] for row in native.values())}/{len(native)}"
                told.append(f"{target} {task}, {page_recall.LENGTHS[target]} tokens: {', '.join([found, *beside])}")
    return "; ".join(told)


def paired(arm: str, native: dict[str, dict[str, Any]], rows: dict[str, dict[str, Any]]) -> str:
    """Return how many codes an arm found of the prompts asked of both, Tango's lower bound, and how many times smaller.

    The bound is one-sided, 95 %, of the difference in percentage points; bytes are medians with the drafter's context.
    """
    both = sorted(native.keys() & rows.keys())
    gained = sum(rows[one]["found"] and not native[one]["found"] for one in both)
    lost = sum(native[one]["found"] and not rows[one]["found"] for one in both)
    bound = 100 * paired_difference_lower(gained, lost, len(both), 0.95)
    sizes = [median(side[one]["kv_bytes"] + side[one]["drafter_bytes"] for one in both) for side in (native, rows)]
    found = sum(rows[one]["found"] for one in both)
    return f"{arm} {found}/{len(both)} (> {bound:.0f} pp, {sizes[0] / sizes[1]:.1f}x)"


def _rows(entries: list[dict[str, Any]], begin: str) -> list[dict[str, Any]]:
    return [row for entry in entries if entry["case"].startswith(begin) for row in entry["rows"]]
