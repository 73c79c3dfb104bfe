"""Runs of inference servers: eight launches of two servers, asked by turns, as the runner reports of them."""

from __future__ import annotations

import random
from typing import Any

from tests.corpus.gate.builders import Case, sha
from tests.corpus.gate.workloads import FOLDER, PYTHON, program

HOLDER = "/opt/kakeya/bridge/launches/hold_servers.py"
ASKER = "/opt/kakeya/bridge/launches/ask_servers.py"
ARMS = ("baseline", "candidate")
COMMAND = "answer_speedup"
PATH = f"{COMMAND}/report.json"
HALVES = ("pinned", "continued")
TOKENS = 12


def metric(name: str, aggregate: str, unit: str, better: str | None = None) -> dict[str, Any]:
    premises = ["inputs", "outputs", *(["times"] if aggregate == "percentiles" else [])]
    return {"name": name, "aggregate": aggregate, "unit": unit, "better": better, "premises": premises}


def served(*, slower: float = 1.5, launches: int = 8, endpoint: bool = False) -> Case:
    """Return a run whose baseline takes `slower` times as long for every answer.

    Args:
        slower: the factor.
        launches: that count.
        endpoint: whether the servers ran before.
    """
    from tests.corpus.gate.runs import around
    from tests.corpus.gate.workloads import _own

    rng = random.Random(7)
    argv = [PYTHON, "-I", "-S", HOLDER, "--@baseline", f"{FOLDER}/old", "--@candidate", f"{FOLDER}/new"]
    rule = {"least": 8, "most": 20, "blocks": 1, "half_width": 0.03, "allowed_s": 400.0}
    plan = {"arms": list(ARMS), "rule": rule, "unit": "samples", "turn_least_s": 0.05, "solo_s": 0.0}
    records, value = [], {"metrics": {}, "answers": [], "turns": [], "launches": []}
    for number in range(launches + 1):
        began, turns = 9.0 * number, []
        now = began + 0.5
        for sample in range(4):
            for arm in ARMS if (number + sample) % 2 else ARMS[::-1]:
                spent = 0.4 * (slower if arm == "baseline" else 1.0) * rng.uniform(0.99, 1.01)
                turns.append({"number": len(turns) + 1, "arm": arm, "sample": sample, "go_s": now,
                              "done_s": now + spent, "tokens": TOKENS, "over": True, "cpu_s": 0.9 * spent})  # fmt: skip
                cpu_s = {name: 0.9 * spent if name == arm else 0.001 for name in (*ARMS, "neither")}
                place = {"launch": number, "turn": len(turns), "arm": arm, "sample": sample}
                value["turns"].append({**place, "wall_s": spent, "cpu_s": cpu_s})
                value["answers"].append(answer(place, HALVES[sample % 2], spent, again=False))
                now += spent + 0.01
        for arm in ARMS:
            place = {"launch": number, "turn": len(turns) + 1, "arm": arm, "sample": number % 4}
            spent = 0.4 * (slower if arm == "baseline" else 1.0) * rng.uniform(0.99, 1.01)
            value["answers"].append(answer(place, HALVES[number % 2], spent, again=True))
            value["answers"].append(answer(place, "whole", spent, again=True))
        value["launches"].append({"launch": number, "asker_s": 0.002, "rss_bytes": dict.fromkeys(ARMS, 1 << 25),
                                 "unlike_lengths": []})  # fmt: skip
        records.append({"command": COMMAND, "number": number, "block": 0, "nonce": sha(str(number)), "turn_tokens": 0,
                        "started_s": began, "ready_s": began + 0.4, "ended_s": now, "slept_s": 0.0, "turns": turns,
                        "solos": [], "cut": None})  # fmt: skip
    ended = 9.0 * len(records)
    case = around({}, profile="smoke", commands=[(0.1, ended)])
    result = {"name": COMMAND, "argv": argv, "started_s": 0.1, "ended_s": ended, "exit_code": 0, "signal": None,
              "peak_rss_bytes": 1 << 20, "cpu_s": 40.0, "survivors": 0}  # fmt: skip
    asker = [PYTHON, "-I", "-S", ASKER, FOLDER, "1"]
    command = {"name": COMMAND, "argv": argv, "launches": plan, "folder": COMMAND, "asker": asker}
    case = _own(case, {PATH: value}, [command], [result], definition(endpoint=endpoint))
    case.record["launches"] = records
    case.spec["seed_basis"] = None
    return case.seal()


def definition(*, endpoint: bool) -> dict[str, Any]:
    sides = [
        metric(f"{side}_{name}", "percentiles", unit, better)
        for side in ARMS
        for name, unit, better in (
            ("first_token", "s", "lower"), ("character", "s", "lower"), ("answer", "s", "lower"),
            ("rate", "characters/s", "higher"), ("memory", "bytes", "lower"),
        )
    ]  # fmt: skip
    programs = [program("folder", FOLDER, 3), program("interpreter", PYTHON), program("timer", HOLDER)]
    return {
        "name": "my-servers",
        "digest": sha("workload"),
        "program": "new against old",
        "metrics": [metric(COMMAND, "ratio", "ratio", "higher"), metric("same_answers", "share", "share"), *sides],
        "programs": [*programs, program("timer", ASKER)],
        "servers": {
            "sides": list(ARMS),
            "same_weights": True,
            "endpoint": endpoint,
            "tokenizer": None,
            "target": None,
        },
    }


def answer(place: dict[str, Any], half: str, whole_s: float, *, again: bool) -> dict[str, Any]:
    """Return a row of the report; both servers say the same."""
    text = f"answer {place['launch']} {place['sample']} " + "word " * TOKENS
    return {**place, "stream": 0, "half": half, "again": again, "text": text, "first_text": text[:7],
            "first_s": whole_s / TOKENS, "whole_s": whole_s, "tokens": TOKENS, "counted": None,
            "first_counted": None, "ends": None, "begins": None, "error": None}  # fmt: skip
