"""Honest runs, and how a change to one is registered as the break of a rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from engine.reports.tokens import token_digest
from tests.corpus.gate.builders import Case, built_once
from tests.corpus.gate.generations import Plan, code_throughput
from tests.corpus.gate.probes import probe, suite

Break = Callable[[], Case]


BREAKS: dict[str, Break] = {}
PASSES: dict[str, Break] = {}
CHANGES: dict[str, Callable[[Case], Case | None]] = {}
"""The changes behind `BREAKS` that were written for one honest run and suit others of its sort, too."""
SMALL = Plan(profile="smoke", launches=1, per_launch=6, warmups=1)


@built_once
def honest(name: str) -> Case:
    """Return a fresh copy of an honest run."""
    from tests.corpus.gate.servers import served
    from tests.corpus.gate.studies import BUILDERS
    from tests.corpus.gate.turned import in_turns
    from tests.corpus.gate.workloads import paired, trained

    made = {
        **BUILDERS,
        "probe": probe,
        "suite": suite,
        "trained": trained,
        "paired": paired,
        "served": served,
        "claim": code_throughput,
        "turned": in_turns,
        "native": lambda: in_turns(names=("autoregressive", "autoregressive_again")),
        "smoke": lambda: code_throughput(SMALL),
    }
    return made[name]()


def breaks(code: str, base: str = "smoke") -> Callable[[Callable[[Case], Case | None]], Callable[[Case], Case | None]]:
    """Register a change to an honest run that must be found by this rule."""

    def register(change: Callable[[Case], Case | None]) -> Callable[[Case], Case | None]:
        def build() -> Case:
            case = honest(base)
            return (change(case) or case).seal()

        BREAKS[code], CHANGES[code] = build, change
        PASSES.setdefault(code, lambda: honest(base))
        return change

    return register


def samples(case: Case, arm: int = 0) -> list[dict[str, Any]]:
    return [sample for sample in case.report["arms"][arm]["samples"] if not sample["is_warmup"]]


def recomputed(case: Case, output: int = 0, **changes: Any) -> None:
    """Let the recompute command have said something else of an output."""
    answer = json.loads(case.raw["recompute.json"])
    next(iter(answer["reports"].values()))["rows"][output].update(changes)
    case.raw["recompute.json"] = json.dumps(answer).encode()


def candidate(case: Case) -> dict[str, Any]:
    return case.report["arms"][-1]


def retoken(case: Case, sample: dict[str, Any], tokens: list[int]) -> None:
    """Give a sample other tokens of the same number, with every digest of them."""
    sample["tokens"], sample["token_digest"] = tokens, token_digest(tokens)
    sample["text"] = " ".join(f"w{token}" for token in tokens)
    for mark in case.record["sample_marks"] if case.record else ():
        if mark["sample"] == sample["id"] and mark["event"] == "end":
            mark["token_digest"] = sample["token_digest"]
