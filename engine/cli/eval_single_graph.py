"""``kakeya-engine eval single-graph``: evaluation times of draft and verify in one graph against two, bounded."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict

from engine.cli.boundary import guarded
from engine.errors import UsageError
from engine.measurement.launch import environment
from engine.measurement.selection import load_prompts
from engine.options import add_model_options, add_out_option, open_selected, positive
from engine.reports import Report, RunContext, write_report
from engine.reports.context import utc_now
from engine.studies.single_graph import ONE_GRAPH, TWO_EVALUATIONS, Block, probe, rows
from engine.tokenizer import Tokenizer


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    built = argparse.ArgumentParser(prog="kakeya-engine eval single-graph", description=__doc__)
    add_model_options(built)
    built.add_argument("--set", default="code-structured", help="prompt set or file; its first prompt is used")
    built.add_argument("--blocks", type=positive, default=32, help="blocks to time (default: %(default)s)")
    built.add_argument("--limit-s", type=float, default=120.0, help="seconds after which no block starts")
    built.add_argument("--depth", type=positive, default=3, help="drafted tokens per block (default: %(default)s)")
    built.add_argument("--report", default="single-graph.json", help="name of the report (default: %(default)s)")
    add_out_option(built)
    return built


def main(argv: list[str]) -> int:
    """Probe; exit 0 when both ways were timed."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    context = RunContext.current(out=options.out)
    engine = open_selected(options)
    clock = engine.backend.clock
    started_at, began_ns = utc_now(), clock.host_ns()
    chosen = load_prompts(options.set, Tokenizer(engine.folder), engine.target.info.name)
    timed = probe(engine, chosen.prompts[0].ids, options.blocks, options.limit_s, options.depth)
    if len({block.mode for block in timed}) < 2:
        raise UsageError(f"only {len(timed)} blocks ran in {options.limit_s} s; raise --limit-s or --blocks")
    report = Report(
        kind="fused_graph_probe",
        config={
            "target": asdict(engine.target.info),
            "drafter": asdict(engine.drafter.info),
            "depth": options.depth,
            "prompt_set": chosen.name,
            "prompt_digest": chosen.prompts[0].digest,
            "blocks": options.blocks,
            "limit_s": options.limit_s,
        },
        environment=environment(engine.backend),
        started_at=started_at,
        ended_at=utc_now(),
        wall_s=(clock.host_ns() - began_ns) / 1e9,
        rows=rows(timed, options.blocks, options.limit_s),
    )
    write_report(report, context, options.report)
    for mode in (TWO_EVALUATIONS, ONE_GRAPH):
        print(f"{mode:<16} {_times(timed, mode)}")
    return 0


def _times(timed: list[Block], mode: str) -> str:
    """Return median and largest time of a way, its warm-up left out."""
    times = [block.eval_s * 1e3 for block in timed if block.mode == mode and block.index >= 2]
    if not times:
        return "only its warm-up ran"
    return f"{len(times):>4} blocks, median {statistics.median(times):.3f} ms, largest {max(times):.3f} ms"
