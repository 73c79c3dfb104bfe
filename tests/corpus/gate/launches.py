"""Launches as the supervisor stamps them, put into an honest run."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from tests.corpus.gate.builders import Case, sha

ARMS = ("autoregressive", "speculative")
SAMPLES, TURNS, TOKENS = 3, 2, 40


def launch(command: str, number: int, log_ratio: float, *, began_s: float = 0.0, block: int = 0) -> dict[str, Any]:
    """Return a launch in which both arms finish every sample, each in two turns, and run alone once."""
    rng, now = random.Random(f"{command} {number} {log_ratio}"), began_s + 2.0
    turns, solos = [], []
    for sample in range(SAMPLES):
        for turn in range(TURNS):
            for arm in ARMS:
                spent = 0.1 * rng.uniform(0.98, 1.02) * (math.exp(log_ratio) if arm == ARMS[0] else 1.0)
                stamp = {"number": len(turns) + 1, "arm": arm, "sample": sample, "tokens": TOKENS}
                turns.append(stamp | {"go_s": now, "done_s": now + spent, "over": turn == TURNS - 1})
                now += spent + 0.001
    for arm in ARMS:
        spent = 0.1 * (math.exp(log_ratio) if arm == ARMS[0] else 1.0) * 30
        stretch = {"number": len(turns) + len(solos) + 1, "arm": arm, "sample": 1, "tokens": TOKENS * 30}
        stretch |= {"go_s": now, "done_s": now + spent, "cpu_s": 0.7 * spent, "waited_s": 0.2 * spent, "source": "proc"}
        solos.append(stretch)
        now += spent
    return {
        "schema_version": 1, "command": command, "number": number, "block": block, "nonce": sha(f"{command} {number}"),
        "turn_tokens": TOKENS, "started_s": began_s, "ready_s": began_s + 1.0, "ended_s": now + 0.5, "slept_s": 0.0,
        "turns": turns, "solos": solos, "cut": None,
    }  # fmt: skip


def launched(case: Case, logs: Sequence[float], *, blocks: int = 1, **rule: Any) -> Case:
    """Return the run with launch 0 and one launch for each of these log ratios."""
    command = case.spec["commands"][0]
    least = {1: 8, 5: 10}.get(blocks, 2 * blocks)
    stop_rule = {"least": least, "most": 20, "blocks": blocks, "half_width": 0.03, "allowed_s": None} | rule
    plan = {"arms": list(ARMS), "rule": stop_rule, "unit": "tokens", "turn_least_s": 0.05, "solo_s": 3.0}
    command["launches"] = plan
    case.record["launches"] = [
        launch(command["name"], number, value, began_s=60.0 * number, block=max(0, number - 1) % blocks)
        for number, value in enumerate([0.0, *logs])
    ]
    return case


def scattered(count: int, middle: float = 0.3, sd: float = 0.01, seed: int = 1) -> list[float]:
    """Return log ratios of launches."""
    rng = random.Random(seed)
    return [rng.gauss(middle, sd) for _ in range(count)]


def in_order(launches: list[dict[str, Any]]) -> None:
    """Push stamps apart that were made longer: turn after turn, launch after launch, each as long as it is."""
    now = 0.0
    for launch in launches:
        stamps = sorted((*launch["turns"], *launch["solos"]), key=lambda stamp: int(stamp["number"]))
        moved = max(0.0, now - launch["started_s"])
        for point in ("started_s", "ready_s", "ended_s"):
            launch[point] += moved
        now = launch["ready_s"]
        for stamp in stamps:
            span, stamp["go_s"] = stamp["done_s"] - stamp["go_s"], max(now, stamp["go_s"] + moved)
            now = stamp["done_s"] = stamp["go_s"] + span
        now = launch["ended_s"] = max(now, launch["ended_s"])
        if launch.get("reference") is not None:
            stamp = launch["reference"]
            span, stamp["go_s"] = stamp["done_s"] - stamp["go_s"], max(now, stamp["go_s"] + moved)
            now = stamp["done_s"] = stamp["go_s"] + span


def decode_early(launches: list[dict[str, Any]], arm: str, share: float) -> None:
    """Move so much of an arm's decoding into the first turn of each sample, which is outside of the ratio."""
    for launch in launches:
        for sample in {turn["sample"] for turn in launch["turns"]}:
            first, *later = [turn for turn in launch["turns"] if (turn["arm"], turn["sample"]) == (arm, sample)]
            for turn in later:
                moved = share * (turn["done_s"] - turn["go_s"])
                turn["done_s"] -= moved
                first["done_s"] += moved
    in_order(launches)
