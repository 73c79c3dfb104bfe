"""Draft and verify as one lazy graph against two evaluations: how long each block's evaluation takes.

A bounded probe: blocks alternate between the two ways inside one sequence, and it ends at a block or time limit,
because a fused graph has been seen to take minutes per block on Metal with a large cache.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.decoding.prompt import check_prompt, room_tokens
from engine.errors import UsageError
from engine.loading import Engine
from engine.types import CacheLayout, Draft, Forward

TWO_EVALUATIONS, ONE_GRAPH = "two_evaluations", "one_graph"


@dataclass(frozen=True, slots=True)
class Block:
    """One drafted block: which way, where, and the seconds from proposing until the decision was on the host."""

    index: int
    mode: str
    position: int
    drafted: int
    accepted: int
    eval_s: float


def probe(engine: Engine, prompt: tuple[int, ...], blocks: int, limit_s: float, depth: int) -> list[Block]:
    """Time up to ``blocks`` blocks, stopping after ``limit_s`` seconds or at the context's end.

    The first block of each way is a warm-up.

    Raises:
        UsageError: If the drafter does not build graphs.
        PromptError: If prompt and blocks do not fit the target.
    """
    info = engine.target.info
    check_prompt(prompt, info, new_tokens=blocks + depth)
    sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
    drafter: Any = engine.drafter.open()
    if not hasattr(drafter, "one_graph"):
        raise UsageError(f"drafter {engine.drafter.info.name!r} builds no lazy graph; expected a DFlash drafter on MLX")
    clock = engine.backend.clock
    last: Forward | None = None
    for last in sequence.prefill(prompt, 512):
        shown = prompt[last.start : last.start + last.rows]
        drafter.observe(last.start, shown, sequence.committed(last, last.rows))
    if last is None:
        raise UsageError("the prompt has no tokens; expected at least one")
    bonus = engine.accept.first(last).bonus
    timed: list[Block] = []
    began_ns = clock.now_ns()
    # How far the blocks reach depends on what is accepted: the end of the context is a bound like the other two.
    while (
        len(timed) < blocks
        and (clock.now_ns() - began_ns) / 1e9 < limit_s
        and room_tokens(sequence.length, info) > depth
    ):
        drafter.one_graph = len(timed) % 2 == 1
        position, start_ns = sequence.length, clock.now_ns()
        draft: Draft = drafter.propose(bonus, position, depth)
        forward = sequence.forward_block(bonus, draft)
        outcome = engine.accept.decide(draft, forward)
        eval_s = (clock.now_ns() - start_ns) / 1e9
        kept = 1 + outcome.accepted
        sequence.crop(position + kept)
        drafter.observe(position, (bonus, *outcome.tokens[:-1]), sequence.committed(forward, kept))
        mode = ONE_GRAPH if drafter.one_graph else TWO_EVALUATIONS
        timed.append(Block(len(timed), mode, position, draft.count, outcome.accepted, eval_s))
        bonus = outcome.bonus
    return timed


def rows(timed: list[Block], blocks: int, limit_s: float) -> dict[str, Any]:
    """Return the report's rows: every block, warm-ups marked, and the bounds."""
    return {
        "blocks": [asdict(block) | {"is_warmup": block.index < 2} for block in timed],
        "asked_blocks": blocks,
        "limit_s": limit_s,
    }
