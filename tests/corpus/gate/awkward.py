"""Honest runs that look odd: none of them may be refused."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.corpus.gate.builders import Case
from tests.corpus.gate.generations import STOP_ID, Plan, code_throughput
from tests.corpus.gate.studies import distributed_bench

SMALL = {"profile": "smoke", "launches": 1, "per_launch": 6, "warmups": 1, "tokens": 96}


def _numbered(rng: random.Random, count: int) -> list[int]:
    """Return lines that differ in their number only: a period of eight with a changing member."""
    tokens: list[int] = []
    while len(tokens) < count:
        tokens += [40, 41 + len(tokens) // 8, 30, 31, 32, 33, 34, 10]
    return tokens[:count]


def _dashes(rng: random.Random, count: int) -> list[int]:
    return [*(rng.randrange(6, 2048) for _ in range(20)), *([45] * (count - 20))]


def _decimal(rng: random.Random, count: int) -> list[int]:
    return [51, 46, *([49, 52, 50, 56, 53, 55] * count)][:count]


def _short(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(6, 2048), STOP_ID]


def _plan(**changes: object) -> Callable[[], Case]:
    return lambda: code_throughput(Plan(**{**SMALL, **changes}))  # type: ignore[arg-type]


def _busy() -> Case:
    case = code_throughput()
    for sample in case.record["telemetry"]["samples"]:
        sample["other_cpu_share"] = 0.2
    return case


def _odd_words() -> Case:
    case = code_throughput(Plan(**SMALL))
    case.report["environment"]["os"] = "Linux 6.1.0 \u03b1\u03b2 \u65e5\u672c"
    case.record["host"]["name"] = "caf\u00e9-\u6a5f"
    return case.seal()


AWKWARD: dict[str, Callable[[], Case]] = {
    "numbered lists": _plan(answer=_numbered),
    "dashes to the end": _plan(answer=_dashes),
    "repeating decimals": _plan(answer=_decimal),
    "braces": _plan(say=lambda tokens: "{" * len(tokens) + "}}}} ]]]"),
    "non-Latin text": _plan(
        say=lambda tokens: "".join(chr(0x4E00 + token) for token in tokens) + " \u0646\u0635 \U0001f600"
    ),
    "markup in text": _plan(say=lambda tokens: f"<b>@all</b> ![x](y) ::error:: %0A {tokens[0]}"),
    "control characters in text": _plan(say=lambda tokens: f"\x1b[31m\x00\u2028{tokens[0]}"),
    "no draft accepted": _plan(accept=0.0),
    "every draft accepted": _plan(accept=1.0),
    "drafter mostly silent": _plan(skip=0.9),
    "very slow samples": _plan(token_s=2.0, step_s=2.5),
    "a candidate ten times slower": _plan(step_s=0.25),
    "two-token answers": _plan(answer=_short),
    "noisy machine": _plan(noise=0.25),
    "bfloat16": _plan(dtype="bfloat16"),
    "4-bit": _plan(dtype="affine4"),
    "forced budget": _plan(stop="budget", answer=lambda rng, count: [rng.randrange(6, 2048) for _ in range(count)]),
    "links longer than a sample takes": lambda: distributed_bench(skip=1.0),
    "a native baseline alone": _plan(arms=("autoregressive",)),
    "others on the machine": _busy,
    "odd words in facts": _odd_words,
}
