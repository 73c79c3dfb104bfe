"""An honest claim run whose turns the supervisor handed out: its samples, stamps and steps agree."""

from __future__ import annotations

import copy
import datetime as dt
import math
import random
from typing import Any

from bridge.gate.rules.arms import drawn_names
from bridge.gate.rules.turns import expected_turns
from tests.corpus.gate.builders import NONCE, Case, built_once, moment, sha
from tests.corpus.gate.generations import MODELS, code_throughput
from tests.corpus.gate.launches import in_order
from tests.corpus.gate.runs import around

ARMS = ("autoregressive", "speculative")
BLOCKS, LAUNCHES, TURN_TOKENS, SOLO_TOKENS = 5, 10, 8, 120
SAMPLE_LEAST_S = 0.3
PLAN = {
    "arms": list(ARMS),
    "rule": {"least": 10, "most": 20, "blocks": BLOCKS, "half_width": 0.03, "allowed_s": 780.0},
    "unit": "tokens",
    "turn_least_s": 0.05,
    "solo_s": 3.0,
    "prefill": True,
}
REFERENCE = ["/opt/kakeya/bin/python", "-I", "-m", "engine.cli", "eval", "code", "--reference"]
Row = dict[str, Any]


def sitting(number: int) -> Case:
    """Return one of six sittings of a standing claim, a rotation of five launches, each a quarter of an hour apart.

    Args:
        number: which, from 0.
    """
    case = in_turns(seed=100 + number, launches=BLOCKS)
    series = case.spec["commands"][0]["launches"]
    series["rule"] = {**series["rule"], "least": BLOCKS, "most": BLOCKS}
    _later(case.report, ("started_at", "ended_at"), number)
    return as_sitting(case, number)


def as_sitting(case: Case, number: int) -> Case:
    """Make a run one of six sittings of a set, a quarter of an hour apart, and seal it."""
    case.spec["sitting"] = {"id": "0" * 25 + "7", "repeat": number, "count": 6}
    case.record["attempt"]["number"] = number + 1
    _later(case.record, ("started", "ended"), number)
    return case.seal()


def _later(owner: Row, names: tuple[str, str], number: int) -> None:
    """Move times by a quarter of an hour a sitting."""
    for name in names:
        at = dt.datetime.fromisoformat(owner[name]) + dt.timedelta(minutes=15 * number)
        owner[name] = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@built_once
def in_turns(
    seed: int = 3,
    faster: float = 1.0,
    names: tuple[str, str] = ARMS,
    report: Row | None = None,
    launches: int = LAUNCHES,
) -> Case:
    """Return the run: ten launches of five blocks of twelve prompts.

    Args:
        seed: of the noise.
        faster: than the machine of the corpus; samples are as many prompts, and turns as many tokens, as last there.
        names: of its arms.
        report: with samples of these arms; None for one of decoding speed.
        launches: that count.
    """
    size_of_sample = math.ceil(SAMPLE_LEAST_S * faster / 0.4)
    rng, report = random.Random(seed), code_throughput().report if report is None else report
    arms = {arm["name"]: arm for arm in report["arms"] if arm["name"] in names}
    row_by_prompt = {(name, row["prompt_id"]): row for name in names for row in arms[name]["samples"]}
    warm = sorted({prompt for (_, prompt), row in row_by_prompt.items() if row["is_warmup"]})
    measured = sorted({prompt for _, prompt in row_by_prompt} - set(warm))
    every, size = drawn_names(measured, NONCE, "blocks"), len(measured) // BLOCKS
    rows: dict[str, list[Row]] = {name: [] for name in names}
    made, now = [_launch(0, 0, 0.5, [], rng, names=names)], 5.0
    for number in range(1, launches + 1):
        block, nonce = (number - 1) % BLOCKS, sha(f"launch {number}")
        order = drawn_names(every[block * size : (block + 1) * size], nonce, number)
        spots = enumerate([*warm, *order])
        pairs = [_pair(row_by_prompt, prompt, (number - 1, place, faster), rng, names) for place, prompt in spots]
        for pair in pairs:
            for name, row in zip(names, pair, strict=True):
                rows[name].append(row)
        mine = pairs[len(warm) :]
        samples = [mine[start : start + size_of_sample] for start in range(0, len(mine), size_of_sample)]
        made.append(_launch(number, block, now, samples, rng, int(TURN_TOKENS * faster), names))
        now = made[-1]["reference"]["done_s"] + 0.5
    return _run(report, arms, rows, made, names)


def _pair(
    row_by_prompt: dict[tuple[str, str], Row],
    prompt: str,
    spot: tuple[int, int, float],
    rng: random.Random,
    names: tuple[str, str],
) -> list[Row]:
    (launch, place, faster), pair = spot, []
    for index, name in enumerate(names):
        row, slower = copy.deepcopy(row_by_prompt[name, prompt]), math.exp(rng.gauss(0.0, 0.01)) / faster
        row["launch"], row["order_index"] = launch, len(names) * place + index
        row["id"] = f"{launch}/{row['order_index']}/{name}/{prompt}"
        row["stages"] = {stage: seconds and seconds * slower for stage, seconds in row["stages"].items()}
        pair.append(row)
    return pair


def _launch(
    number: int,
    block: int,
    began_s: float,
    samples: list[list[list[Row]]],
    rng: random.Random,
    turn_tokens: int = TURN_TOKENS,
    names: tuple[str, str] = ARMS,
) -> Row:
    turns, now = [], began_s + 2.0
    for sample, pairs in enumerate(samples):
        waiting = {name: _stamped([pair[place] for pair in pairs], turn_tokens) for place, name in enumerate(names)}
        while any(waiting.values()):
            for name in rng.sample(names, k=2):
                if waiting[name]:
                    tokens, spent = waiting[name].pop(0)
                    stamp = {"number": len(turns) + 1, "arm": name, "sample": sample, "tokens": tokens}
                    turns.append(stamp | {"go_s": now, "done_s": now + spent, "over": not waiting[name]})
                    now += spent + 1e-4
    every = [pair for pairs in samples for pair in pairs]
    solos: list[Row] = []
    for place, name in enumerate(names if every else ()):
        solos.append(_alone(name, [pair[place] for pair in every], now, len(turns) + place + 1))
        now = solos[-1]["done_s"]
    ended = now
    reference = None
    if solos:
        spent = solos[0]["done_s"] - solos[0]["go_s"]
        reference = solos[0] | {"arm": "reference", "number": 1, "go_s": ended + 1.0, "done_s": ended + 1.0 + spent}
    return {
        "schema_version": 1, "command": "verb-0", "number": number, "block": block, "nonce": sha(f"launch {number}"),
        "turn_tokens": turn_tokens, "started_s": began_s, "ready_s": began_s + 1.0, "ended_s": ended, "slept_s": 0.0,
        "turns": turns, "solos": solos, "reference": reference, "cut": None,
    }  # fmt: skip


def _stamped(rows: list[Row], turn_tokens: int) -> list[tuple[int, float]]:
    """Return tokens and seconds of each turn of a sample."""
    first, *later = expected_turns(rows, turn_tokens)
    prefill_s, decode_s = (sum(row["stages"][stage] for row in rows) for stage in ("prefill_s", "decode_s"))
    return [(first, prefill_s), *((count, decode_s * count / sum(later)) for count in later)]


def _alone(name: str, mine: list[Row], now: float, number: int) -> Row:
    token_s = sum(row["stages"]["total_s"] for row in mine) / sum(row["output_tokens"] for row in mine)
    spent = SOLO_TOKENS * token_s
    stretch = {"number": number, "arm": name, "sample": 1, "tokens": SOLO_TOKENS, "go_s": now, "done_s": now + spent}
    return stretch | {
        "cpu_s": 0.9 * spent,
        "waited_s": 0.0,
        "gpu_s": None,
        "gpu_source": "unknown: not read",
        "source": "proc",
    }


def _run(
    report: Row, arms: dict[str, Row], rows: dict[str, list[Row]], launches: list[Row], names: tuple[str, str]
) -> Case:
    ended = launches[-1]["reference"]["done_s"] + 1.0
    chosen = {(name, row["prompt_id"]): row["id"] for name in names for row in arms[name]["samples"]}
    old = {row["sample"]: row for row in report["fallbacks"]}
    by_prompt = {key: old[name] for key, name in chosen.items() if name in old}
    placed = sorted((row["launch"], row["order_index"], row["id"]) for mine in rows.values() for row in mine)
    fallbacks = [
        by_prompt[key] | {"sample": name} for *_, name in placed if (key := tuple(name.split("/")[2:])) in by_prompt
    ]
    value = report | {
        "arms": [arms[name] | {"samples": rows[name]} for name in names],
        "claims": [],
        "fallbacks": fallbacks,
        "started_at": moment(2.0),
        "ended_at": moment(ended - 0.5),
        "wall_s": round(ended - 30.0, 6),
    }
    drafts = "autoregressive_again" not in names
    primary = "decode_speedup" if drafts else "baseline_tokens_per_s"
    if not drafts:
        value["config"] = value["config"] | {"drafter": None, "block_size": None, "depth": None}
    case = around({"report.json": value}, commands=[(0.1, ended)], marks=[], models=MODELS, primary=primary)
    command = case.spec["commands"][0]
    command |= {"launches": PLAN | {"arms": list(names)}, "reference": REFERENCE}
    for launch in launches:
        launch["command"] = command["name"]
    case.record["launches"] = launches
    return case.seal()


@built_once
def commits_in_turns(slower: float = 1.0) -> Case:
    """Return a comparison whose turns were handed out; the head takes so many times as long."""
    from tests.corpus.gate.studies import commit_comparison

    comparison = commit_comparison()
    case = in_turns(names=("base", "head"), report=comparison.report)
    for part in ("base", "code", "trust_class", "tree", "params"):
        case.spec[part] = comparison.spec[part]
    case.report["run"]["params"] = comparison.spec["params"]
    case.record["code"].update(comparison.record["code"])
    case.record["imported"] = comparison.record["imported"]
    case.report["rows"] = {**comparison.report["rows"], "passes": [list(range(10))]}
    case.spec["commands"][0]["reference"] = None
    for launch in case.record["launches"]:
        launch["reference"] = None
        for stamp in (*launch["turns"], *launch["solos"]):
            if stamp["arm"] == "head":
                longer = (slower - 1.0) * (stamp["done_s"] - stamp["go_s"])
                stamp["done_s"] += longer
                if "cpu_s" in stamp:
                    stamp["cpu_s"] += longer
    in_order(case.record["launches"])
    return case.seal()
