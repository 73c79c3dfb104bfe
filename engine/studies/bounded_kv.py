"""How many bytes a sequence holds by context, one arm a process: the library's own cache, or a layout of the engine.

Two arms in one process would share an allocator, so a launch is one arm: launch 0 … are the repeats of the baseline,
the rest those of the candidate. A point decodes some tokens after its context, because a cache read after the prefill
alone still holds what the prefill needed. The same generation runs once before it is measured, and what the allocator
holds then, all of that forgotten, is the idle reading that the buffers' sum must explain.

Rows of the report::

    {"points": [{"arm", "role", "process", "repeat", "context_tokens", "decode_steps", "kv_bytes", "kv_bytes_peak",
                 "host_bytes", "drafter_bytes", "latent_bytes", "allocator_idle_bytes", "allocator_active_bytes",
                 "token_digest"}]}
"""

from __future__ import annotations

import argparse
import gc
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.errors import PromptError, UsageError
from engine.loading import Engine
from engine.measurement import arms
from engine.measurement.arms import Running
from engine.measurement.launch import restoration_facts, target_facts
from engine.measurement.selection import PromptSet, load_prompts
from engine.measurement.study import Study
from engine.options import (
    add_chunk_option,
    add_model_options,
    add_report_options,
    cache_layout,
    counts,
    open_undrafted,
    positive,
    whole,
)
from engine.reports import RunContext, token_digest, write_report
from engine.reports.parts import merge, part_name, read_parts, remove_parts
from engine.restoration.choice import add_restoration_option
from engine.stopping import Stopping
from engine.structure.layout import CacheLayout
from engine.studies.command import StudyCommand
from engine.tokenizer import Tokenizer
from engine.types import Step

NATIVE = "native"


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """One launch: a repeat of the library's own cache or of ``layout``. ``ids`` hold at least the longest context."""

    layout: CacheLayout
    native: bool
    repeat: int
    process: int
    contexts: tuple[int, ...]
    decode_tokens: int
    chunk_tokens: int
    ids: tuple[int, ...]

    def check(self, engine: Engine) -> None:
        """Check the plan against the target, before any work.

        Raises:
            UsageError: If it asks for nothing, for a context twice, or for a layout the target cannot have.
            PromptError: If the longest context does not fit the ids or the target.
        """
        if not self.contexts or min((*self.contexts, self.decode_tokens)) < 1:
            raise UsageError(f"contexts {self.contexts}, {self.decode_tokens} tokens; expected at least one of each")
        if len(set(self.contexts)) < len(self.contexts):
            raise UsageError(f"contexts {self.contexts}; expected each once: growth is measured over different lengths")
        longest = max(self.contexts)
        if longest > len(self.ids) or longest + self.decode_tokens >= engine.target.info.max_positions:
            raise PromptError(
                f"a context of {longest} tokens and {self.decode_tokens} more; there are {len(self.ids)} prompt tokens "
                f"and the target holds {engine.target.info.max_positions} positions"
            )
        kept = self.layout.kept_rows
        if kept is not None and kept >= longest:
            raise UsageError(
                f"cache layout {self.layout} keeps {kept} rows and the longest context has {longest} tokens, so "
                "nothing leaves; expected a longer one (--contexts), fewer pages or a smaller window"
            )
        opened: Any = engine.target.open((), self.layout)
        opened.close()


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Everything one arm held at one context, in bytes read from buffers and allocator.

    ``host_bytes`` are those of ``kv_bytes`` that lie in the host's memory, where the allocator does not count them.
    """

    arm: str
    role: str
    process: int
    repeat: int
    context_tokens: int
    decode_steps: int
    kv_bytes: int
    kv_bytes_peak: int
    host_bytes: int
    drafter_bytes: int
    latent_bytes: int
    allocator_idle_bytes: int | None
    allocator_active_bytes: int | None
    token_digest: str


def measure_memory(
    engine: Engine, plan: MemoryPlan, heard: Callable[[MemoryPoint], None] = lambda _: None
) -> tuple[MemoryPoint, ...]:
    """Measure every context of one arm; ``heard`` learns of each point.

    Raises:
        UsageError, PromptError: If the plan cannot be measured on this target.
    """
    plan.check(engine)
    engine.backend.keep_no_freed_memory()
    points = []
    for context in plan.contexts:
        _generation(engine, plan, plan.ids[:context])
        idle = _allocated(engine)
        held, steps, peak = _generation(engine, plan, plan.ids[:context])
        active = _allocated(engine)
        tokens = [token for step in steps for token in step.tokens]
        points.append(
            MemoryPoint(
                arm=NATIVE if plan.native else str(plan.layout),
                role="baseline" if plan.native else "candidate",
                process=plan.process,
                repeat=plan.repeat,
                context_tokens=context,
                decode_steps=len(steps) - 1,
                kv_bytes=held.kv_bytes(),
                kv_bytes_peak=peak,
                host_bytes=held.host_bytes(),
                drafter_bytes=0,
                latent_bytes=held.latent_bytes(),
                allocator_idle_bytes=idle,
                allocator_active_bytes=active,
                token_digest=token_digest(tokens),
            )
        )
        del held
        heard(points[-1])
    return tuple(points)


def joined_points(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the points of all launches in the report's order: the baseline first, then by arm, context and repeat."""
    points: list[Mapping[str, Any]] = [point for part in parts for point in part["rows"]["points"]]
    return sorted(points, key=lambda p: (p["role"] != "baseline", p["arm"], p["context_tokens"], p["repeat"]))


def _generation(engine: Engine, plan: MemoryPlan, prompt: tuple[int, ...]) -> tuple[Running, list[Step], int]:
    """Decode after ``prompt``; return what reads, and keeps alive, the cache, the steps and the largest reading."""
    stopping = Stopping(plan.decode_tokens + 1, frozenset())
    if plan.native:
        # A decoder of its own: the shared one would keep this sequence's cache alive beyond the point.
        running = arms.native(engine.backend.native(engine.target), prompt, stopping, plan.chunk_tokens)
    else:
        running = arms.undrafted(engine, plan.layout, prompt, stopping, plan.chunk_tokens)
    seen, peak = [], 0
    for step in running.steps:
        seen.append(step)
        peak = max(peak, running.kv_bytes())
    return running, seen, peak


def _allocated(engine: Engine) -> int | None:
    """Return what the allocator holds once nothing runs and nothing unreachable is left."""
    engine.backend.clock.now_ns()
    gc.collect()
    return engine.backend.allocator_active_bytes()


def options(parser: argparse.ArgumentParser) -> None:
    """Add the models, the layout, and which launch this is."""
    add_model_options(parser)
    parser.add_argument("--cache", default="sink4+window64", help="layout that is measured (default: %(default)s)")
    add_restoration_option(parser)
    parser.add_argument("--contexts", default="256,512,1024,2048", help="context lengths (default: %(default)s)")
    parser.add_argument("--set", default="needle", help="prompt set whose text is the context (default: %(default)s)")
    parser.add_argument("--max-new", type=positive, default=32, help="tokens decoded after it (default: %(default)s)")
    add_chunk_option(parser)
    parser.add_argument("--launch", type=whole, default=0, help="which launch this is, from 0")
    parser.add_argument("--launches", type=positive, default=2, help="how many there are, an even number")
    parser.add_argument("--assemble", action="store_true", help="join the launches into the report")
    add_report_options(parser, "bounded-kv.json")


def measure(options: argparse.Namespace) -> Sequence[Mapping[str, Any]]:
    """Measure one launch and write its part, or join the launches; return the points of the report.

    Raises:
        UsageError: If the launch is none of those there are, or launches are missing.
    """
    if options.assemble:
        return _assembled(options)
    _measure_launch(options)
    return ()


def report(points: Sequence[Mapping[str, Any]]) -> None:
    """Print the points of a whole report."""
    for point in points:
        print(f"{point['arm']} at {point['context_tokens']} tokens: {point['kv_bytes']} bytes")


def _measure_launch(options: argparse.Namespace) -> None:
    repeats, odd = divmod(options.launches, 2)
    if odd or not 0 <= options.launch < options.launches:
        raise UsageError(
            f"--launch {options.launch} of --launches {options.launches}; expected 0 <= launch < launches and as many "
            "launches of either arm"
        )
    context, layout = RunContext.current(out=options.out, profile=options.profile), cache_layout(options)
    layout.check_alone()
    if layout == CacheLayout.NATIVE:
        raise UsageError("--cache native is the baseline of every report; expected a bounded or quantised layout")
    engine = open_undrafted(options)
    prompts = load_prompts(options.set, Tokenizer(engine.folder), engine.target.info.name)
    plan = MemoryPlan(
        layout=layout,
        native=options.launch < repeats,
        repeat=options.launch % repeats,
        # Process numbers repeat between sandboxes; a number drawn in the process does not.
        process=1 + secrets.randbits(48),
        contexts=counts("--contexts", options.contexts),
        decode_tokens=options.max_new,
        chunk_tokens=options.prefill_chunk,
        ids=context_ids(prompts, context.nonce),
    )
    target = engine.target.info
    sizes = {
        "hidden_size": target.hidden_size,
        "layer_count": target.layer_count,
        "max_positions": target.max_positions,
    }
    config = {
        "target": target_facts(target) | sizes,
        "drafter": None,
        "restoration": restoration_facts(engine),
        "cache_layout": str(layout),
        "prompt_set": prompts.name,
        "prefill_chunk_tokens": options.prefill_chunk,
    }

    def run() -> tuple[tuple[MemoryPoint, ...], dict[str, Any]]:
        points = measure_memory(engine, plan, _show)
        return points, {"rows": {"points": [asdict(point) for point in points]}}

    Study("bounded_kv", engine.backend, config, context, part_name(options.launch)).write(run)


def context_ids(prompts: PromptSet, nonce: str) -> tuple[int, ...]:
    """Return the tokens that contexts are cut from: those of a set's prompts in the order that a run's nonce draws."""
    every = prompts.drawn(len(prompts.prompts), nonce).prompts
    return tuple(token for prompt in every for token in prompt.ids)


def _assembled(options: argparse.Namespace) -> list[Mapping[str, Any]]:
    context = RunContext.current(out=options.out, profile=options.profile)
    parts = read_parts(context.out, {"bounded_kv"})
    points = joined_points(parts)
    native = sum(point["role"] == "baseline" for point in points)
    if 2 * native != len(points):
        raise UsageError(
            f"the launches hold {native} points of the library's cache and {len(points) - native} of the layout; "
            "expected as many of either. Run the launches that are missing."
        )
    joined = replace(merge(parts), rows={"points": points})
    write_report(joined, context, options.report)
    remove_parts(context.out)
    return points


def _show(point: MemoryPoint) -> None:
    print(f"{point.arm} at {point.context_tokens} tokens: {point.kv_bytes} bytes of cache", flush=True)


COMMAND = StudyCommand(
    "Bytes a sequence holds by context. A launch is a process with one arm: the first half of the launches measures "
    "the library's own cache, the second half --cache. --assemble joins them.",
    options,
    measure,
    report,
)
