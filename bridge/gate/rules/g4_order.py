"""Samples ran in the order their numbers say, and the order of the arms is the one drawn from the request digest.

A fixed order with a first-position effect gives 52 to 64 % false differences; an order that somebody chose can be
chosen until it helps. Every order of the arms occurs equally often; anyone can draw it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import permutations

from bridge.gate import kinds
from bridge.gate.interface import Evidence, Report, Violation
from bridge.gate.rule import report_rule
from bridge.gate.sampled import Arm, arms_of


@report_rule("G4-ORDER", kinds=kinds.INTERLEAVED, remedy="Use the engine's schedule, seeded by KAKEYA_REQUEST_DIGEST.")
def _look(report: Report, evidence: Evidence) -> Iterator[Violation]:
    arms = arms_of(report, evidence).all
    placed = [(s["launch"], s["order_index"], arm.name, s) for arm in arms for s in arm.samples]
    launches = sorted({launch for launch, *_ in placed})
    if launches != list(range(len(launches))):
        yield Violation(f"launches {launches}, expected 0, 1, … without gaps")
    digest = str(report.body["run"]["request_digest"])
    for launch in launches:
        rows = sorted(((index, name, s) for number, index, name, s in placed if number == launch), key=lambda r: r[0])
        if [index for index, *_ in rows] != list(range(len(rows))):
            yield Violation(f"launch {launch}: order_index is not 0, 1, … {len(rows) - 1}", "/arms")
            continue
        warm = [row for row in rows if row[2]["is_warmup"]]
        if any(row[2]["is_warmup"] for row in rows[len(warm) :]):
            yield Violation(f"launch {launch}: a warm-up came after a measured sample", "/arms")
            continue
        yield from _drawn(launch, [(name, s["prompt_id"]) for _, name, s in rows[len(warm) :]], arms, digest)


def _drawn(launch: int, rows: Sequence[tuple[str, str]], arms: tuple[Arm, ...], digest: str) -> Iterator[Violation]:
    size = len(arms)
    blocks = [rows[start : start + size] for start in range(0, len(rows), size)]
    for block in blocks:
        if len({prompt for _, prompt in block}) != 1 or len({name for name, _ in block}) != size:
            yield Violation(f"launch {launch}: {block[0][1]!r} did not meet every arm in turn", "/arms")
            return
    orders = list(permutations(arm.name for arm in arms))
    if len(blocks) % len(orders):
        yield Violation(f"launch {launch}: {len(blocks)} prompts cannot balance {len(orders)} orders", "/arms")
        return
    wanted = shuffled(orders * (len(blocks) // len(orders)), digest, launch, "orders")
    got = [tuple(name for name, _ in block) for block in blocks]
    if got != wanted:
        first = next(index for index, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b)
        yield Violation(
            f"launch {launch}: prompt {first} met {' '.join(got[first])}; "
            f"the request digest draws {' '.join(wanted[first])}",
            "/arms",
        )


def shuffled(items: Sequence[tuple[str, ...]], *seed: object) -> list[tuple[str, ...]]:
    """Return the items in the order of sha256 over the seed and their index."""

    def rank(index: int) -> bytes:
        return hashlib.sha256("/".join(str(part) for part in (*seed, index)).encode()).digest()

    return [items[index] for index in sorted(range(len(items)), key=rank)]
