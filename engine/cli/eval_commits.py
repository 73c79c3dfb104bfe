"""``kakeya-engine eval commits``: one launch of two checkouts' code against each other, and the joining of launches."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from engine.cli.boundary import guarded
from engine.cli.eval_assemble import claims
from engine.cli.eval_compare import show
from engine.errors import UsageError
from engine.isolation.checkouts import Opening
from engine.loading import resolve_model
from engine.measurement.selection import load_prompts
from engine.options import (
    DEFAULT_DEPTH,
    DEFAULT_TARGET,
    add_chunk_option,
    add_launch_options,
    add_out_option,
    check_launch,
    chosen_drafter,
    positive,
)
from engine.reports import RunContext, write_report
from engine.reports.parts import merge, part_name, read_parts, remove_parts
from engine.reports.summary import summarise
from engine.studies import commits as comparison
from engine.tokenizer import Tokenizer


def parser() -> argparse.ArgumentParser:
    """Return the command line of a launch."""
    built = argparse.ArgumentParser(
        prog="kakeya-engine eval commits",
        description="Measure one launch: every prompt with the code of both checkouts, interleaved in an order drawn "
        "from the request digest; this process asks and takes the times, a child per arm decodes.",
    )
    built.add_argument("--base", required=True, help="commit of the checkout in FOLDER/base")
    built.add_argument("--head", required=True, help="commit of the checkout in FOLDER/head")
    built.add_argument("--folder", type=Path, default=Path(), help="holds both checkouts (default: here)")
    built.add_argument("--margin", type=float, default=0.05, help="slower by more than this share (default: 0.05)")
    built.add_argument("--backend", choices=("mlx", "torch"), default="mlx", help="array library (default: mlx)")
    built.add_argument(
        "--depth", type=positive, default=DEFAULT_DEPTH, help="drafted tokens per step (default: %(default)s)"
    )
    built.add_argument("--set", default="code-structured", help="prompt set or file (default: %(default)s)")
    built.add_argument("--profile", choices=tuple(comparison.ARMS), help="only by hand: how much to measure")
    built.add_argument("--max-new", type=positive, help="token budget (default: the profile's)")
    add_chunk_option(built)
    add_launch_options(built)
    built.add_argument("--confirm", action="store_true", help="a launch of the second pass, if the first was slow")
    add_out_option(built)
    return built


def main(argv: list[str]) -> int:
    """Measure; exit 0 when the part is written, or when there is nothing to confirm."""
    options = parser().parse_args(argv)
    return guarded(lambda: _run(options))


def assemble(argv: list[str]) -> int:
    """Join the launches of both passes; exit 0 when the report is written and the parts are gone."""
    built = argparse.ArgumentParser(prog="kakeya-engine eval commits-assemble", description=assemble.__doc__)
    built.add_argument("--report", default="report.json", help="name of the report (default: %(default)s)")
    built.add_argument("--profile", choices=tuple(comparison.ARMS), help="only by hand: the profile of the launches")
    add_out_option(built)
    options = built.parse_args(argv)
    return guarded(lambda: _assemble(options))


def _run(options: argparse.Namespace) -> int:
    check_launch(options)
    context = RunContext.current(out=options.out, profile=options.profile)
    commits = comparison.Commits(options.base, options.head, options.folder.resolve(), options.margin)
    comparison.check(commits)
    number = options.launch
    if options.confirm:
        first = read_parts(context.out, {comparison.KIND})[: options.launches]
        if not comparison.is_first_pass_slow(first, options.margin):
            print(f"launch {options.launch + 1} of {options.launches}: the first pass is not slow, nothing to confirm")
            return 0
        number += options.launches
    target = resolve_model(os.environ.get("KAKEYA_TARGET") or DEFAULT_TARGET)
    named = chosen_drafter(None, target)
    drafter = named if named in {None, "ngram"} else str(resolve_model(str(named)))
    opening = Opening(options.backend, str(target), drafter, options.depth, options.prefill_chunk)
    tokenizer = Tokenizer(target)
    profile = comparison.profile_of(context.profile, options.max_new)
    prompts = load_prompts(options.set, tokenizer, target.name).lasting(profile.max_new_tokens)
    word = "second pass, launch" if options.confirm else "launch"
    print(f"{word} {options.launch + 1} of {options.launches}: {commits.base[:12]} and {commits.head[:12]}", flush=True)
    turn = comparison.Turn(number, options.launch, options.launches, show)
    work = comparison.Work(opening, prompts, profile, tokenizer)
    part = comparison.run_launch(commits, work, context, turn)
    write_report(part, context, part_name(number))
    return 0


def _assemble(options: argparse.Namespace) -> int:
    context = RunContext.current(out=options.out, profile=options.profile)
    parts = read_parts(context.out, {comparison.KIND})
    if any(part["rows"] != parts[0]["rows"] for part in parts):
        raise UsageError(
            "launches of one run differ in the code they ran; expected the same two checkouts in all of them"
        )
    first = parts[0]["rows"]
    rows = {"passes": comparison.passes(first["launches"], len(parts)), "trees": first["trees"]}
    report = replace(merge(parts), rows=rows)
    summary = summarise(report)
    write_report(replace(report, claims=claims(report, summary)), context, options.report)
    remove_parts(context.out)
    if summary.ratio is not None:
        word = "one pass" if len(rows["passes"]) == 1 else "two passes"
        print(f"base / head decode time: {summary.ratio:.3f}x over {summary.compared} prompts, {word}")
        print("the gate says what may be said of it")
    return 0
