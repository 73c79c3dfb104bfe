"""``kakeya-engine eval peer|answer``: host code asks and measures, request code answers; joining launches."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace

from engine.checkpoint import ASSETS
from engine.cli.boundary import guarded
from engine.cli.eval_compare import show
from engine.errors import UsageError
from engine.isolation import answering
from engine.isolation.peers import Ends, Peer
from engine.measurement.arms import ArmSettings
from engine.measurement.drawn_prompts import words_of
from engine.options import (
    DEFAULT_DEPTH,
    add_chunk_option,
    add_launch_options,
    add_model_options,
    cache_layout,
    check_launch,
    depth_factory,
    open_selected,
    positive,
)
from engine.reports import Claim, Report, RunContext, write_report
from engine.reports.parts import merge, part_name, read_parts, remove_parts
from engine.reports.summary import measured
from engine.studies import request_code
from engine.tokenizer import Tokenizer

_WORDS_OF = "code-structured"


def main(argv: list[str]) -> int:
    """Ask the peer of this command and measure what it answers; exit 0 when the part is written."""
    built = argparse.ArgumentParser(prog="kakeya-engine eval peer", description=main.__doc__)
    add_model_options(built)
    built.add_argument("--max-new", type=positive, help="token budget (default: the profile's)")
    add_chunk_option(built)
    add_launch_options(built)
    options = built.parse_args(argv)
    return guarded(lambda: _ask(options))


def answer(argv: list[str]) -> int:
    """Decode what is asked over the runner's pipes; exit 0 when nobody asks any more."""
    built = argparse.ArgumentParser(prog="kakeya-engine eval answer", description=answer.__doc__)
    add_model_options(built)
    built.add_argument("--depth", default=str(DEFAULT_DEPTH), help="drafted tokens per step (default: %(default)s)")
    add_chunk_option(built)
    options = built.parse_args(argv)
    return guarded(lambda: _answer(options))


def assemble(argv: list[str]) -> int:
    """Join the launches; exit 0 when the report is written and the parts are gone."""
    built = argparse.ArgumentParser(prog="kakeya-engine eval peer-assemble", description=assemble.__doc__)
    built.add_argument("--report", default="report.json", help="name of the report (default: %(default)s)")
    options = built.parse_args(argv)
    return guarded(lambda: _assemble(options))


def _ask(options: argparse.Namespace) -> int:
    check_launch(options)
    ends, nonce = Ends.from_environment(os.environ), os.environ.get("KAKEYA_NONCE", "")
    if not nonce:
        raise UsageError("KAKEYA_NONCE is not set; the runner draws it when the command begins")
    context = RunContext.current()
    options.drafter, options.cache = "none", "native"
    engine = open_selected(options)
    make_depth, _ = depth_factory("0", engine)
    settings = ArmSettings(cache_layout(options, lossless=True), make_depth, options.prefill_chunk)
    rows = json.loads((ASSETS / "prompts" / f"{_WORDS_OF}.json").read_text("utf-8"))["prompts"]
    words = words_of(tuple(row["text"] for row in rows))
    profile = request_code.profile_of(context.profile, options.max_new)
    asking = request_code.Asking(options.launch, nonce, words, profile, settings)
    print(f"launch {options.launch + 1} of {options.launches}: {engine.target.info.name}, asking a peer", flush=True)
    peer = Peer(ends, engine.target.info.vocab_size)
    sides = request_code.Sides(engine, Tokenizer(engine.folder), peer)
    part = request_code.run_launch(sides, asking, context, show)
    write_report(part, context, part_name(options.launch))
    return 0


def _answer(options: argparse.Namespace) -> int:
    asks, replies = (os.environ.get(f"KAKEYA_PEER_{name}", "") for name in ("ASK", "REPLY"))
    if not (asks.isdigit() and replies.isdigit()):
        raise UsageError("KAKEYA_PEER_ASK and KAKEYA_PEER_REPLY are not set; a runner starts this side too")
    options.cache = "native"
    answering.answer(
        int(asks),
        int(replies),
        lambda: open_selected(options),
        lambda engine: ArmSettings(
            cache_layout(options), depth_factory(options.depth, engine)[0], options.prefill_chunk
        ),
    )
    return 0


def _assemble(options: argparse.Namespace) -> int:
    context = RunContext.current()
    parts = read_parts(context.out, {request_code.KIND})
    report = replace(merge(parts), rows=request_code.joined_rows(parts))
    claim = stated(report)
    write_report(replace(report, claims=(claim,)), context, options.report)
    remove_parts(context.out)
    print(f"native decoding / peer, prompt to last token: {claim.value:.3f}x; the gate says what may be said of it")
    return 0


def stated(report: Report) -> Claim:
    """Return what the report states: total time of the baseline, mean over its arms, over the peer's."""
    *ours, peer = report.arms
    theirs_s = sum(sample.stages.total_s for sample in measured(peer))
    ours_s = sum(sample.stages.total_s for arm in ours for sample in measured(arm)) / len(ours)
    names = (peer.name, *(arm.name for arm in ours))
    return Claim("total_speedup", "total_speedup", names, ours_s / theirs_s, "ratio")
