"""Coordinated cheats through the real runner: which premise falls is compared with a column that was written before.

The column is `fell` of each lie in `tests/integration/gate/lies`, beside the rules that must take it; what no rule sees
says why in `unseen`. A premise fell where a rule took it that takes nothing from the honest twin of the same preset. A
busy machine takes premises, too: only those that a lie's own rules took count, and what rules on noise say counts of
lies about time alone, which want a quiet machine. They come last, before some lies at the full size of a claim.
Resumable: a case is a lie.
"""

from __future__ import annotations

import atexit
import contextlib
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.studies.study import Entry, Row, Study, rows_of
from tests.integration.gate.lies import LIES, TWINS
from tests.integration.gate.lies.registry import Lie
from tests.integration.gate.site import Ended, Site, serving

IN_TURNS = "honest-in-turns"
FULL = (
    IN_TURNS,
    "both-arms-sleep",
    "a-baseline-slowed-by-half",
    "work-moved-into-the-other-arms-turns",
    "garbage-after-a-right-first-token",
    "the-first-arm-honest-and-the-second-not",
    "outputs-of-another-prompt",
    "prompts-of-its-own",
    "the-quickest-prompt-again-and-again",
    "a-native-cache-told-large",
    "no-recompute-command",
)
"""An honest run and ten lies that are told at the full size, too."""
WHOLE = "full-size "
NOISY = frozenset({"G4-MARKS", "G5-BUDGET", "G5-REFERENCE", "G5-SOLO", "G8-STATE", "G8-TELEMETRY"})
"""Rules that a busy machine breaks, whatever the program does: marks come late, stretches and turns scatter."""


def cases() -> Sequence[str]:
    """Return the lies in turns, those without, those about time, and those at full size."""
    marked = ("decode", "aside", "memory")
    by_order = sorted(LIES, key=lambda name: (LIES[name].timed, LIES[name].preset in marked))
    return (*by_order, *(WHOLE + name for name in FULL))


def twin_of(name: str) -> str:
    """Return the honest run that a lie is set beside."""
    return TWINS.get(LIES[name].preset, IN_TURNS)


def run(case: str) -> list[Row]:
    """Tell one lie and return what became of it."""
    name = case.removeprefix(WHOLE)
    profile = "claim" if case.startswith(WHOLE) else "smoke"
    lie, ended = LIES[name], _ended(name, profile)
    fell = _taken(ended) - _taken(_ended(twin_of(name), profile))
    noise = set() if lie.timed else {finding for finding in fell if finding[1] in NOISY - set(lie.codes)}
    fell -= noise
    premises = sorted({premise for premise, *_ in fell})
    return [
        {
            "forgery": name,
            "profile": profile,
            "expected": lie.fell,
            "unseen": lie.unseen,
            "fell": premises,
            "by": sorted({code for _, code, _ in fell}),
            "noise": sorted({code for _, code, _ in noise}),
            "decision": ended.verdict["decision"],
            "reason": ended.claim.reason,
            "evidence": sorted(claim["id"] for claim in ended.verdict["claims"] if claim["decision"] == "evidence"),
            "as_written": _as_written(lie, fell, ended.verdict["decision"]),
        }
    ]


def _as_written(lie: Lie, fell: set[tuple[str, str, str]], decision: str) -> bool:
    """Whether one of a lie's own rules took the premise that was written down, or nothing fell where nothing was."""
    if not lie.fell:
        return not fell and decision in {"evidence", "valid"}
    return any(premise == lie.fell and code in lie.codes for premise, code, _ in fell)


def summary(entries: Sequence[Entry]) -> list[str]:
    """Return in a sentence how many cheats lost what was written down beforehand."""
    outcomes = rows_of(entries)
    detectable, unseen = [row for row in outcomes if row["expected"]], [row for row in outcomes if row["unseen"]]
    honest = [row for row in outcomes if row not in detectable and row not in unseen]
    shares = [f"{sum(row['as_written'] for row in rows)} of {len(rows)}" for rows in (detectable, unseen, honest)]
    return [
        (
            f"{len(outcomes)} of {len(cases())} told: {shares[0]} lost the premise written down beforehand, "
            f"{shares[1]} that nothing was expected to see lost none, {shares[2]} that change nothing kept all"
        )
    ]


def _taken(ended: Ended) -> set[tuple[str, str, str]]:
    """Return the premises that rules took from a run, each with the rule and what it looked at."""
    findings: list[dict[str, Any]] = ended.verdict["findings"]
    return {
        (finding["premise"], finding["code"], finding["where"])
        for finding in findings
        if finding["premise"] is not None
    }


@cache
def _site() -> Site:
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    site = stack.enter_context(serving(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forgeries-")))))
    site.keep_an_earlier_report()
    return site


@cache
def _ended(name: str, profile: str) -> Ended:
    site = _site()
    if profile == "claim" or name not in site.requests:
        site.ask(name, profile=profile)
    return site.ended(name)


STUDY = Study(
    "forgeries",
    "Which premise does each coordinated cheat lose, through the real runner?",
    cases,
    run,
    "two hours",
    summary,
)
