"""Coordinated lies about time, by a program whose turns the runner hands out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from engine.turns import TurnOrder, TurnsOfLaunch
from tests.integration.gate.in_turns import PREFILL_S, SET, InTurns, burn
from tests.integration.gate.lies import registry
from tests.integration.gate.workload import ARMS, Report

BASELINE, CANDIDATE = ARMS
STEP_S = 0.011  # not as long as a prefill
turned = partial(registry.turned, timed=True)


def paced(*, in_turns: dict[str, float] | None = None, alone: dict[str, float] | None = None) -> dict[str, Any]:
    """Return work that takes so many times as long on an arm, in turns and alone."""
    shares = {False: in_turns or {}, True: alone or {}}
    return {"work": lambda arm, apart, seconds: burn(arm, apart, seconds * shares[apart].get(arm, 1.0))}


def paced_decoding(*, in_turns: dict[str, float], alone: dict[str, float]) -> dict[str, Any]:
    """Return work that takes so many times as long on an arm, but for prompts, which take what they take."""
    shares = {False: in_turns, True: alone}

    def work(arm: str, apart: bool, seconds: float) -> None:
        burn(arm, apart, seconds if seconds == PREFILL_S else seconds * shares[apart].get(arm, 1.0))

    return {"work": work, "step_s": STEP_S}


def everywhere(**share: float) -> dict[str, Any]:
    arms = {"baseline": BASELINE, "candidate": CANDIDATE}
    shares = {arms[name]: value for name, value in share.items()}
    return paced(in_turns=shares, alone=shares)


def sleeping(*arms: str, in_turns: float = 1.0, alone: float | None = 1.0) -> dict[str, Any]:
    """Return work that arms sleep through; alone they work where no share is given."""

    def work(arm: str, apart: bool, seconds: float) -> None:
        share = alone if apart else in_turns
        if arm in arms and share is not None:
            time.sleep(seconds * share)
        else:
            burn(arm, apart, seconds)

    return {"work": work}


def scaled(factor: float, *arms: str) -> dict[str, Any]:
    """Return a report whose program says another time than its turns took."""

    def finish(report: Report) -> Report:
        for arm in report["arms"]:
            for row in arm["samples"] if arm["name"] in arms else ():
                stages = row["stages"]
                for name in ("prefill_s", "decode_s", "total_s"):
                    stages[name] *= factor
        report["wall_s"] *= max(1.0, factor)
        return report

    return {"finish": finish}


def early(arm: str, apart: bool, seconds: float) -> None:
    """Do most of the candidate's decoding of a sample before its first token is named; alone it decodes as it does."""
    if arm == CANDIDATE and not apart:
        seconds = PREFILL_S + 0.7 * 13 * STEP_S if seconds == PREFILL_S else 0.3 * seconds
    burn(arm, apart, seconds)


def stretches(**factor: float) -> Callable[[TurnOrder, TurnsOfLaunch], int | None]:
    """Return how many tokens are told of a stretch alone that was worked through, at the pace of the step times."""
    factors = {BASELINE: factor.get("baseline", 1.0), CANDIDATE: factor.get("candidate", 1.0)}

    def answer(order: TurnOrder, _launch: TurnsOfLaunch) -> int | None:
        assert order.seconds is not None
        spent_s = order.seconds * 1.05
        burn(order.arm, True, spent_s)
        pace = {BASELINE: 1 / 0.0062, CANDIDATE: 2.4 / 0.0105}[order.arm]
        return round(spent_s * pace * factors[order.arm])

    return answer


def at_once(order: TurnOrder, launch: TurnsOfLaunch) -> int | None:
    return 400 if order.arm == CANDIDATE and launch.number else None


def repeated(rows: dict[str, list[Report]], earlier: list[Any]) -> None:
    """Say the times of the first launch again."""
    first_rows = {(row["id"].split("/")[2], row["prompt_id"]): row for part in earlier[:1] for row in part["rows"]}
    for name, mine in rows.items():
        for row in mine:
            if (name, row["prompt_id"]) in first_rows:
                row["stages"] = first_rows[name, row["prompt_id"]]["stages"]


def ends_itself(order: TurnOrder, launch: TurnsOfLaunch) -> int | None:
    if launch.number == 2:
        os._exit(0)
    return None


def decodes_it_all(_written: int) -> None:
    """Decode every prompt of the set plainly, before anything is measured."""
    honest = InTurns()
    burn(BASELINE, False, len(SET) * honest.tokens * honest.token_s)


def breaks_off(_order: TurnOrder, launch: TurnsOfLaunch) -> int | None:
    return -1 if launch.number else None


turned("both-arms-sleep", "G3-PROCESSOR", fell="times", **sleeping(*ARMS))
turned("a-candidate-that-sleeps", "G5-SOLO", fell="times", **sleeping(CANDIDATE))
turned("a-baseline-that-sleeps", "G5-SOLO", fell="times", **sleeping(BASELINE))
turned("sleeps-less-in-turns", "G5-SOLO", fell="times", **sleeping(CANDIDATE, in_turns=0.3, alone=None))
turned(
    "sleeps-as-long-in-turns-and-works-alone",
    unseen="who worked is read in stretches alone, never in a turn; a pace that agrees with them gains nothing",
    **sleeping(CANDIDATE, alone=None),
)
turned("a-baseline-slowed-by-half", "G5-REFERENCE", fell="times", **everywhere(baseline=1.5))
turned("a-baseline-slowed-twofold", "G5-REFERENCE", fell="times", **everywhere(baseline=2.0))
turned("a-baseline-slowed-in-turns", "G5-SOLO", fell="times", **paced(in_turns={BASELINE: 2.0}))
turned("a-candidate-quick-in-turns", "G5-SOLO", fell="times", **paced(in_turns={CANDIDATE: 0.5}))
turned(
    "work-moved-into-the-other-arms-turns",
    "G5-SOLO",
    fell="times",
    **paced(in_turns={CANDIDATE: 0.4, BASELINE: 1.6}),
)
turned(
    "a-baseline-slowed-in-turns-beside-a-candidate-quick-alone",
    unseen="what an arm puts out in a stretch alone is counted, not computed again: two lies there can agree",
    **paced_decoding(in_turns={BASELINE: 1.4}, alone={CANDIDATE: 1 / 1.4}),
)
turned(
    "a-slowed-baseline-whose-stretches-are-counted-up",
    unseen="what an arm puts out in a stretch alone is counted, not computed again: two lies there can agree",
    **paced_decoding(in_turns={BASELINE: 1.4}, alone={}),
    answer_solo=stretches(baseline=1.0, candidate=1.76),
)
turned("decodes-in-its-first-turns", "G5-PREFILL", fell="times", work=early, step_s=STEP_S)
turned("stretches-counted-up", "G5-SOLO", fell="times", answer_solo=stretches(baseline=1.0, candidate=3.0))
turned(
    "stretches-of-both-arms-counted-up",
    "G5-REFERENCE",
    fell="times",
    answer_solo=stretches(baseline=6.0, candidate=6.0),
)
turned("a-stretch-answered-at-once", "G2-ENDING", fell="bound", rejected=True, answer_solo=at_once)
turned("faster-than-its-drafts", "G5-PREFILL", fell="times", **everywhere(candidate=0.15))
turned(
    "answers-listed-and-the-processor-kept-busy",
    unseen="a program that knows the pinned prompts may put out their answers at any pace that its drafts allow",
    **paced_decoding(in_turns={CANDIDATE: 0.7}, alone={CANDIDATE: 0.7}),
)
turned(
    "everything-decoded-before-it-is-ready",
    unseen="the pinned prompts are known before any process begins: what is decoded before it says that it is ready, "
    "or in the launch that calibrates, could as well have come with the program, so no bound on that time would tell",
    begin_launch=decodes_it_all,
    **paced_decoding(in_turns={CANDIDATE: 0.7}, alone={CANDIDATE: 0.7}),
)
turned(
    "launches-broken-off-where-an-arm-runs-alone",
    "G4-TURNS",
    fell="times",
    answer_solo=breaks_off,
    ends_quietly=True,
)
turned("its-own-clock-says-more", "G4-TURNS", fell="times", **scaled(1.6, *ARMS))
turned(
    "its-own-clock-says-less",
    unseen="no claim rests on a program's own clock where the runner stamped turns: nothing is gained",
    **scaled(0.5, *ARMS),
)
turned(
    "its-own-clock-says-less-of-one-arm",
    unseen="no claim rests on a program's own clock where the runner stamped turns: nothing is gained",
    **scaled(0.5, CANDIDATE),
)
turned("one-launch-told-as-three", "G5-CLOCK", fell="times", part=repeated)
turned(
    "ends-a-launch-itself",
    "G2-ENDING",
    fell="bound",
    rejected=True,
    missed="a launch that ends itself as if all were well is cut and the run goes on: its ratio loses times instead",
    answer_solo=ends_itself,
)
turned("honest-with-a-slow-candidate", **everywhere(candidate=2.5))
turned("honest-without-a-difference", **everywhere(candidate=1.4))
