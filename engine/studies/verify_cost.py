"""What a verify forward of L rows costs beside a decode of one, by context length, and what a draft costs.

All lengths of one context are measured in turn, in an order shuffled anew for every repeat, on one sequence that is
cropped back after each forward: a slow moment of the machine meets every length alike. Times run from an idle device to
the accepted tokens on the host, which is what a decoding step pays. What is verified is what the target would have said
itself, so that every row of a block is seen in the tokens that come out; these do not repeat, so one digest is kept.

Rows of the report::

    {"verify": [{"context_tokens", "rows", "seconds": [..], "token_digest"}],
     "draft":  [{"context_tokens", "drafted_tokens", "seconds": [..], "token_digest"}]}
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from engine.decoding.arms import CostTable
from engine.decoding.cost_tables import write_costs
from engine.decoding.lookups import LOOKED_UP
from engine.errors import NonFiniteLogitsError, PromptError, UsageError
from engine.loading import Engine
from engine.measurement.launch import model_facts
from engine.measurement.study import Study
from engine.options import (
    add_model_options,
    add_report_options,
    cost_key,
    counts,
    open_selected,
    positive,
)
from engine.protocols import Drafter
from engine.reports import Fallback, RunContext, token_digest
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.types import Draft

WARM_UPS = 2
REPEATS = {"smoke": 8, "claim": 40}


@dataclass(frozen=True, slots=True)
class CostPlan:
    """Which shapes are measured how often. ``rows`` counts the bonus, so 1 is a plain decode."""

    contexts: tuple[int, ...]
    rows: tuple[int, ...]
    repeats: int
    seed: str

    def check(self, max_positions: int) -> None:
        """Check the plan against a target.

        Raises:
            UsageError: If it holds no decode to compare with or asks for nothing.
            PromptError: If a context leaves no room for the longest block.
        """
        if min((*self.contexts, *self.rows, self.repeats)) < 1 or not self.contexts:
            raise UsageError(f"contexts {self.contexts}, rows {self.rows}, repeats {self.repeats}; expected all >= 1")
        if 1 not in self.rows:
            raise UsageError(f"rows {self.rows} hold no 1; a cost is read beside a decode of one row")
        if max(self.contexts) + max(self.rows) >= max_positions:
            raise PromptError(
                f"a context of {max(self.contexts)} tokens and a block of {max(self.rows)} rows; the target holds "
                f"{max_positions} positions"
            )


@dataclass(frozen=True, slots=True)
class VerifyCost:
    """Seconds of every forward over ``rows`` rows after ``context_tokens`` positions, and what it decided."""

    context_tokens: int
    rows: int
    seconds: tuple[float, ...]
    token_digest: str


@dataclass(frozen=True, slots=True)
class DraftCost:
    """Seconds of every draft of ``drafted_tokens`` tokens with ``context_tokens`` positions, and the tokens."""

    context_tokens: int
    drafted_tokens: int
    seconds: tuple[float, ...]
    token_digest: str


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """All raw rows, and the forwards that ran otherwise than asked."""

    verify: tuple[VerifyCost, ...]
    draft: tuple[DraftCost, ...]
    fallbacks: tuple[Fallback, ...] = ()

    def rows(self) -> dict[str, Any]:
        """Return the report's rows."""
        return {"verify": [asdict(row) for row in self.verify], "draft": [asdict(row) for row in self.draft]}

    def table(self, drafter: str) -> CostTable:
        """Return what steps of the shortest context take, by drafter and rows; looked-up tokens need no draft."""
        shortest = min(row.context_tokens for row in self.verify)
        verify_s = {row.rows: median(row.seconds) for row in self.verify if row.context_tokens == shortest}
        draft_s = {row.drafted_tokens + 1: median(row.seconds) for row in self.draft if row.context_tokens == shortest}
        drafted = {rows: verify_s[rows] + draft_s.get(rows, 0.0) for rows in verify_s if rows == 1 or rows in draft_s}
        return {LOOKED_UP: verify_s} | ({drafter: drafted} if draft_s else {})

    def ratio(self, context_tokens: int, rows: int) -> float:
        """Return the median cost of ``rows`` rows over that of one."""
        middle = {row.rows: median(row.seconds) for row in self.verify if row.context_tokens == context_tokens}
        return middle[rows] / middle[1]


def measure_costs(engine: Engine, plan: CostPlan, heard: Callable[[int], None] = lambda _: None) -> MeasuredCosts:
    """Measure every shape of ``plan``; ``heard`` learns of each context when it is finished.

    Raises:
        UsageError: If the plan is unusable.
        PromptError: If a context does not fit the target.
        NonFiniteLogitsError: If the target has no usable next token.
    """
    plan.check(engine.target.info.max_positions)
    verify: list[VerifyCost] = []
    draft: list[DraftCost] = []
    fallbacks: list[Fallback] = []
    for context in plan.contexts:
        found = _measure_context(engine, plan, context)
        verify += found.verify
        draft += found.draft
        fallbacks += found.fallbacks
        heard(context)
    return MeasuredCosts(tuple(verify), tuple(draft), tuple(fallbacks))


def _measure_context(engine: Engine, plan: CostPlan, context: int) -> MeasuredCosts:
    chooser = random.Random(f"{plan.seed}/{context}")  # noqa: S311 - a reproducible order, not a secret
    # Ids above the special ones where there are any: what a token is changes no shape, and no stop rule is asked.
    low = max((*engine.target.info.stop_ids, 0)) + 1
    low = low if low < engine.target.info.vocab_size else 0
    ids = tuple(chooser.randrange(low, engine.target.info.vocab_size) for _ in range(context + 1))
    sequence = engine.target.open(engine.drafter.capture, CacheLayout.NATIVE)
    drafter = engine.drafter.open()
    for forward in sequence.prefill(ids[:context], 512):
        shown = ids[forward.start : forward.start + forward.rows]
        drafter.observe(forward.start, shown, sequence.committed(forward, forward.rows))
    bonus, own = ids[context], _own_words(engine, ids, max(plan.rows))

    def verify(rows: int) -> tuple[int, ...]:
        block = Draft(tokens=own[1:rows], count=rows - 1)
        decided = engine.accept.decide(block, sequence.forward_block(bonus, block))
        sequence.crop(context)
        return decided.tokens

    def ask(count: int) -> tuple[int, ...]:
        tokens: Any = drafter.ask(bonus, context, count).tokens
        return tuple(tokens.tolist())

    depths = _depths(engine, drafter, plan.rows)
    work = [(verify, rows) for rows in plan.rows] + [(ask, count) for count in depths]
    found = [
        (size, *one) for (_, size), one in zip(work, _interleaved(engine, work, plan.repeats, chooser), strict=True)
    ]
    drafter.close()
    split = len(plan.rows)
    return MeasuredCosts(
        tuple(VerifyCost(context, *one) for one in found[:split]),
        tuple(DraftCost(context, *one) for one in found[split:]),
        tuple(Fallback("verify", "graphs", None, reason, count) for reason, count in sequence.fallbacks().items()),
    )


def _own_words(engine: Engine, ids: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the last of ``ids`` and what the target says after it, ``count`` tokens in all.

    Raises:
        NonFiniteLogitsError: If it says nothing.
    """
    # On a sequence of its own: a window goes back over the last block only.
    sequence = engine.target.open((), CacheLayout.NATIVE)
    for _ in sequence.prefill(ids[:-1], 512):
        pass
    words = [ids[-1]]
    while len(words) < count:
        decided = engine.accept.decide(Draft(), sequence.forward_block(words[-1], Draft()))
        if not decided.tokens:
            raise NonFiniteLogitsError(
                f"the target has no usable next token after {sequence.length} positions: {decided.guard}; expected "
                "finite logits. Check the weights, or use another dtype."
            )
        words += decided.tokens
    return tuple(words)


def _interleaved(
    engine: Engine, work: Sequence[tuple[Callable[[int], tuple[int, ...]], int]], repeats: int, chooser: random.Random
) -> list[tuple[tuple[float, ...], str]]:
    """Run every piece of work ``repeats`` times after warm-ups, each turn in a new order.

    Returns:
        By piece its seconds, and the digest of the tokens that came out when it ran first.
    """
    seconds: list[list[float]] = [[] for _ in work]
    digests: list[str] = [""] * len(work)
    for turn in range(WARM_UPS + repeats):
        order = list(range(len(work)))
        chooser.shuffle(order)
        for index in order:
            run, size = work[index]
            began_ns = engine.backend.clock.now_ns()
            tokens = run(size)
            spent_ns = engine.backend.clock.now_ns() - began_ns
            digests[index] = digests[index] or token_digest(tokens)
            if turn >= WARM_UPS:
                seconds[index].append(spent_ns / 1e9)
    return [(tuple(spent), digest) for spent, digest in zip(seconds, digests, strict=True)]


def _depths(engine: Engine, drafter: Drafter, rows: Sequence[int]) -> tuple[int, ...]:
    """Return the draft lengths that belong to the block lengths, none for a drafter without a network.

    None either for one elsewhere: how long its drafts take depends on a link, and is no part of a step.
    """
    block_size = engine.drafter.info.block_size
    if block_size is None or drafter.round_trip_s("") is not None:
        return ()
    return tuple(size - 1 for size in rows if 1 < size <= block_size)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, and which shapes are measured."""
    add_model_options(parser)
    add_report_options(parser, "verify-cost.json")
    parser.add_argument("--contexts", default="64,512", help="context lengths in tokens (default: %(default)s)")
    parser.add_argument("--rows", default="1,2,4,8,16", help="block lengths, bonus included (default: %(default)s)")
    parser.add_argument("--repeats", type=positive, help="forwards of each shape (default: the profile's)")
    parser.add_argument(
        "--costs",
        type=Path,
        metavar="FILE",
        help="write what steps of the shortest context take there too, for `generate --costs FILE`",
    )
    parser.add_argument(
        "--random-shapes",
        help="torch only: a target of published shapes with random weights, for cost alone (gemma4-26b-a4b)",
    )


def measure(options: argparse.Namespace) -> tuple[CostPlan, MeasuredCosts]:
    """Measure verify(L) and draft(L) by context length and write the report.

    Raises:
        UsageError: If the plan is unusable, costs cannot be written, or random weights are asked of MLX.
    """
    context = RunContext.current(out=options.out, profile=options.profile)
    plan = CostPlan(
        counts("--contexts", options.contexts),
        counts("--rows", options.rows),
        options.repeats or REPEATS[context.profile],
        context.nonce,
    )
    if options.costs is not None and (options.costs.is_dir() or not options.costs.parent.is_dir()):
        raise UsageError(f"--costs {options.costs}: expected a file in a folder that is there")
    engine = _engine(options)

    def run() -> tuple[MeasuredCosts, dict[str, Any]]:
        found = measure_costs(engine, plan, lambda size: print(f"context {size}: measured", flush=True))
        return found, {"rows": found.rows(), "fallbacks": found.fallbacks}

    shapes = {"contexts": list(plan.contexts), "rows": list(plan.rows), "repeats": plan.repeats}
    config = model_facts(engine) | shapes
    costs = Study("verify_cost", engine.backend, config, context, options.report).write(run)
    if options.costs is not None:
        write_costs(options.costs, cost_key(engine), costs.table(engine.drafter.info.name))
    return plan, costs


def report(found: tuple[CostPlan, MeasuredCosts]) -> None:
    """Print what verifying costs beside decoding."""
    plan, costs = found
    for size in plan.contexts:
        shown = "  ".join(f"{rows}: {costs.ratio(size, rows):.2f}" for rows in plan.rows)
        print(f"context {size}: verify(rows) / decode, medians of this run  {shown}")


def _engine(options: argparse.Namespace) -> Engine:
    if options.random_shapes is None:
        return open_selected(options)
    if options.backend != "torch":
        raise UsageError("--random-shapes builds its target with torch; add --backend torch")
    from engine.loading import open_random

    return open_random(options.random_shapes, options.device, options.dtype, options.cuda_graphs)


COMMAND = StudyCommand("Measure what verifying a block costs beside decoding one token.", options, measure, report)
