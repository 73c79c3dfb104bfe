"""What a lie is, how one is registered, and what they are made with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.gate.in_turns import NEEDLE, InTurns
from tests.integration.gate.workload import Behaviour, Report

EARLIER = "earlier.json"
"""The report of an earlier honest run, beside the models."""
MODELS = "KAKEYA_MODEL_ROOTS"


@dataclass(frozen=True)
class Lie:
    """A way to lie.

    Attributes:
        behaviour: makes what the workload does.
        codes: rules that must say so.
        fell: the premise that falls, written down before the lie is told; empty where the lie changes none.
        unseen: why no rule sees it, for a lie that takes no premise; docs/gate/forgeries.md prints it.
        decision: what the gate decides at best.
        reason: how the run ends.
        preset: which of the test's presets runs it.
        missed: why something else can fall than was written down; the page prints it, too.
        timed: it is one about time: what rules on the machine's noise say of it is about the lie.
    """

    behaviour: Callable[[], Behaviour]
    codes: tuple[str, ...]
    fell: str = ""
    decision: str = "rejected"
    reason: str = "gate_rejected"
    preset: str = "decode"
    unseen: str = ""
    missed: str = ""
    timed: bool = False


LIES: dict[str, Lie] = {
    "honest": Lie(Behaviour, (), "", "valid", "passed"),
    "honest-memory": Lie(Behaviour, (), "", "valid", "passed", "memory"),
    "honest-in-turns": Lie(InTurns, (), "", "valid", "passed", "turns"),
    "honest-needles": Lie(lambda: InTurns(kind=NEEDLE), (), "", "valid", "passed", "needles"),
}


HONEST = ("honest", "honest-memory", "honest-in-turns")
TWINS = {"decode": "honest", "aside": "honest", "memory": "honest-memory", "needles": "honest-needles"}
"""The honest run that a lie of a preset is set beside; of every other preset it is the one in turns."""
RUN_FOR_REAL = {
    "scaled-decode-times": "its marks arrive when they are written",
    "a-handicapped-baseline": "the baseline does wait",
    "fused-with-zero-blocks": "nothing is drafted while it is measured",
    "fewer-prompts-than-the-design": "the prompt was never measured",
    "a-good-report-and-a-crash": "a signal ends the process",
    "copies-an-earlier-report-with-its-times": "the file system says when a file came to be",
    "says-evidence": "what it prints goes through the log",
    "changes-the-report-after-the-end": "a process is left behind that holds the file",
    "the-engine-then-a-program": "the runner starts both commands",
    "garbage-after-a-right-first-token": "a process of the host's computes every output again",
}
"""Lies that need a run of their own, each with what only the runner can see of it."""
SECONDS_LONG = ("sleeps-for-seconds",)
"""Lies that the study alone tells; every other one in turns is told there, too, but for those above."""


def lie(name: str, *codes: str, preset: str = "decode", **expected: str) -> Callable[[Callable[[], Behaviour]], None]:
    def register(behaviour: Callable[[], Behaviour]) -> None:
        LIES[name] = Lie(behaviour, codes, preset=preset, **expected)

    return register


def told(name: str, *codes: str, preset: str = "decode", **expected: str) -> Callable[[Callable[[Report], Any]], None]:
    """Register a lie that changes the report after an honest measurement."""

    def register(change: Callable[[Report], Any]) -> None:
        def finish(report: Report) -> Any:
            changed = change(report)
            return report if changed is None else changed

        LIES[name] = Lie(lambda: Behaviour(finish=finish), codes, preset=preset, **expected)

    return register


def turned(
    name: str, *codes: str, preset: str = "turns", fell: str = "", unseen: str = "", missed: str = "",
    rejected: bool = False, timed: bool = False, **how: Any,
) -> None:  # fmt: skip
    """Register a lie of the stand-in in turns, by what it does otherwise."""
    ends = ("rejected", "gate_rejected") if rejected else ("valid", "passed")
    LIES[name] = Lie(lambda: InTurns(**how), codes, fell, *ends, preset, unseen, missed, timed)


def written(name: str, *codes: str, **expected: str) -> Callable[[Callable[[Path, Report], None]], None]:
    """Register a lie about the file rather than its contents."""

    def register(write: Callable[[Path, Report], None]) -> None:
        LIES[name] = Lie(lambda: Behaviour(write=write), codes, **expected)

    return register


def mild(decision: str) -> str:
    """Return a decision as far as it does not depend on changes in this checkout, whose code is then nobody's."""
    return "valid" if decision == "recorded" else decision


def premises_of(verdict: Any, lie: Lie) -> set[str]:
    """Return the premises that the rules of a lie took."""
    return {
        finding["premise"]
        for finding in verdict["findings"]
        if finding["code"] in lie.codes[:1] and finding["severity"] != "note"
    }


def rows(report: Report, arm: int = 1) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = report["arms"][arm]["samples"]
    return samples


def measured(report: Report, arm: int = 1) -> list[dict[str, Any]]:
    return [row for row in rows(report, arm) if not row["is_warmup"]]


def plain_counters(row: dict[str, Any]) -> None:
    steps = row["output_tokens"] - 1
    row["accepted_per_step"] = row["drafted_per_step"] = [0] * steps
    zero = dict.fromkeys(row["counters"], 0)
    row["counters"] = {**zero, "steps": steps, "target_forwards": steps, "host_syncs": steps + 1}


def save(path: Path, report: Report) -> None:
    path.write_text(json.dumps(report))


def earlier() -> Path:
    return Path(os.environ[MODELS]) / EARLIER
