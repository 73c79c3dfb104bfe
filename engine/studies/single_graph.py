"""Draft and verify as one lazy graph against two evaluations: how long each block's evaluation takes.

A bounded probe: blocks alternate between the two ways inside one sequence, and it ends at a block or time limit,
because a fused graph has been seen to take minutes per block on Metal with a large cache.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from engine.decoding.prompt import check_prompt, room_tokens
from engine.errors import UsageError
from engine.loading import Engine
from engine.measurement.selection import load_prompts
from engine.measurement.study import Study
from engine.options import add_model_options, add_out_option, amount, open_selected, positive
from engine.reports import RunContext
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.tokenizer import Tokenizer
from engine.types import Draft, Forward

TWO_EVALUATIONS, ONE_GRAPH = "two_evaluations", "one_graph"


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """One drafted block: which way, where, and the seconds from proposing until the decision was on the host."""

    index: int
    mode: str
    position: int
    drafted: int
    accepted: int
    eval_s: float


def probe(engine: Engine, prompt: tuple[int, ...], blocks: int, limit_s: float, depth: int) -> list[TimedBlock]:
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
    timed: list[TimedBlock] = []
    began_ns = clock.now_ns()
    # How far the blocks reach depends on what is accepted: the end of the context is a bound like the other two.
    while (
        len(timed) < blocks
        and (clock.now_ns() - began_ns) / 1e9 < limit_s
        and room_tokens(sequence.length, info) > depth
    ):
        drafter.one_graph = len(timed) % 2 == 1
        position, start_ns = sequence.length, clock.now_ns()
        draft: Draft = drafter.ask(bonus, position, depth)
        forward = sequence.forward_block(bonus, draft)
        outcome = engine.accept.decide(draft, forward)
        eval_s = (clock.now_ns() - start_ns) / 1e9
        kept = 1 + outcome.accepted
        sequence.crop(position + kept)
        drafter.observe(position, (bonus, *outcome.tokens[:-1]), sequence.committed(forward, kept))
        mode = ONE_GRAPH if drafter.one_graph else TWO_EVALUATIONS
        timed.append(TimedBlock(len(timed), mode, position, draft.count, outcome.accepted, eval_s))
        bonus = outcome.bonus
    return timed


def rows(timed: list[TimedBlock], blocks: int, limit_s: float) -> dict[str, Any]:
    """Return the report's rows: every block, warm-ups marked, and the bounds."""
    return {
        "blocks": [asdict(block) | {"is_warmup": block.index < 2} for block in timed],
        "asked_blocks": blocks,
        "limit_s": limit_s,
    }


def options(parser: argparse.ArgumentParser) -> None:
    """Add what is timed, and for how long."""
    add_model_options(parser)
    parser.add_argument("--set", default="code-structured", help="prompt set or file; one prompt of it is drawn")
    parser.add_argument("--blocks", type=positive, default=32, help="blocks to time (default: %(default)s)")
    parser.add_argument("--limit-s", type=amount, default=120.0, help="seconds after which no block starts")
    parser.add_argument("--depth", type=positive, default=3, help="drafted tokens per block (default: %(default)s)")
    parser.add_argument("--report", default="single-graph.json", help="name of the report (default: %(default)s)")
    add_out_option(parser)


def measure(options: argparse.Namespace) -> list[TimedBlock]:
    """Time blocks both ways and write the report.

    Raises:
        UsageError: If only one way was timed.
    """
    context = RunContext.current(out=options.out)
    engine = open_selected(options)
    chosen = load_prompts(options.set, Tokenizer(engine.folder), engine.target.info.name).drawn(1, context.nonce)
    config = {
        "target": asdict(engine.target.info),
        "drafter": asdict(engine.drafter.info),
        "depth": options.depth,
        "prompt_set": chosen.name,
        "prompt_digest": chosen.prompts[0].digest,
        "blocks": options.blocks,
        "limit_s": options.limit_s,
    }

    def run() -> tuple[list[TimedBlock], dict[str, Any]]:
        timed = probe(engine, chosen.prompts[0].ids, options.blocks, options.limit_s, options.depth)
        if len({block.mode for block in timed}) < 2:
            raise UsageError(f"only {len(timed)} blocks ran in {options.limit_s} s; raise --limit-s or --blocks")
        return timed, {"rows": rows(timed, options.blocks, options.limit_s)}

    return Study("fused_graph_probe", engine.backend, config, context, options.report).write(run)


def report(timed: list[TimedBlock]) -> None:
    """Print the times of both ways."""
    for mode in (TWO_EVALUATIONS, ONE_GRAPH):
        print(f"{mode:<16} {_times(timed, mode)}")


def _times(timed: list[TimedBlock], mode: str) -> str:
    """Return median and largest time of a way, its warm-up left out."""
    times = [block.eval_s * 1e3 for block in timed if block.mode == mode and block.index >= 2]
    if not times:
        return "only its warm-up ran"
    return f"{len(times):>4} blocks, median {statistics.median(times):.3f} ms, largest {max(times):.3f} ms"


COMMAND = StudyCommand(
    "``kakeya-engine eval single-graph``: evaluation times of draft and verify in one graph against two, bounded.",
    options,
    measure,
    report,
)
