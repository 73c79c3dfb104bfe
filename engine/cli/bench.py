"""``kakeya-engine bench compare|overhead|controller``: the engine beside others on the same weights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from engine.bench.contest import Contest, Entry, as_row, standings, table
from engine.bench.controller import ControllerTrial, DrafterWorld, Pair, curve
from engine.bench.overhead import Overhead, loop_overhead
from engine.bench.peer import Contestant, engine_peers, oracle
from engine.bench.turns import SLICE_TOKENS
from engine.cli.arguments import VerbParser
from engine.cli.boundary import guarded
from engine.decoding.prompt import check_prompts
from engine.drafters.dflash_model import DFlashModel
from engine.drafters.draft_model import DraftModel
from engine.errors import UsageError
from engine.loading import Engine, resolve_model
from engine.measurement.ratio import PairedRatio
from engine.measurement.selection import Prompt, load_prompts
from engine.measurement.study import Study
from engine.options import (
    AUTO,
    add_cache_option,
    add_model_options,
    add_out_option,
    cache_layout,
    check_depth,
    chosen_drafter,
    depth_factory,
    from_here,
    longest_depth,
    open_selected,
    positive,
)
from engine.protocols import Depth
from engine.reports import RunContext
from engine.structure.layout import CacheLayout
from engine.tokenizer import Tokenizer

VERBS = ("compare", "overhead", "controller")
WORLDS = ("plain", "useless", "long", "turning", "own")
BUDGETS = (64, 128, 256)


def parser() -> argparse.ArgumentParser:
    """Return the command line of every verb."""
    built = VerbParser(
        prog="kakeya-engine bench",
        description="compare: decode the same prompts with the engine and with the library's own ways, in turns of a "
        "few tokens (prompt by prompt on CUDA, or with a drafter elsewhere), check every token, and print decode-time "
        "ratios by prompt with their 95 % interval. overhead: split a step into calls of backend and drafter, and the "
        "loop itself. controller: what a cold depth controller costs when drafting does not pay, token budget by token "
        "budget.",
    )
    built.add_argument("verb", choices=VERBS)
    add_model_options(built)
    add_cache_option(built)
    built.add_argument("--draft-model", help="small causal model for the library's own draft-model mode")
    built.add_argument("--depths", default="3", help="depths of the engine's drafter, auto included (default: 3)")
    built.add_argument("--set", default="code-structured", help="prompt set or file (default: %(default)s)")
    built.add_argument("--prompts", type=positive, default=12, help="prompts measured (default: %(default)s)")
    built.add_argument("--max-new", type=positive, default=256, help="token budget (default: %(default)s)")
    built.add_argument("--repeats", type=positive, default=3, help="decodes of each prompt (default: %(default)s)")
    built.add_argument("--worlds", help=f"controller only: some of {','.join(WORLDS)} (default: all)")
    built.add_argument("--reference", help="contestant the others are compared with (default: the library's plain one)")
    add_out_option(built)
    return built


def main(argv: list[str]) -> int:
    """Run a benchmark; exit 0 when it finished, whoever was faster."""
    options = parser().parse_args(argv)
    verbs = {"compare": _compare, "overhead": _overhead, "controller": _controller}
    return guarded(lambda: verbs[options.verb](options))


def _compare(options: argparse.Namespace) -> int:
    cache_layout(options, lossless=True)
    _check_depths(options)
    engine = open_selected(options)
    prompts, warmups = _prompts(options, engine)
    peers = contestants(engine, options)
    reference = options.reference or peers[0].name
    if reference not in {peer.name for peer in peers}:
        raise UsageError(f"no contestant {reference!r}; here run: {', '.join(peer.name for peer in peers)}")

    @cache
    def expected(ids: tuple[int, ...]) -> tuple[int, ...]:
        return oracle(engine, ids, options.max_new)

    context = RunContext.current(out=options.out)
    # Recorded forwards on CUDA hold one sequence at a time, and a draft from elsewhere would come while others decode,
    # as if its link cost nothing: there contestants decode one after the other.
    slice_tokens = None if engine.backend.device.startswith("cuda") or _is_elsewhere(engine) else SLICE_TOKENS
    rule = options.max_new, options.repeats, context.nonce, engine.backend.clock, slice_tokens
    contest = Contest(peers, prompts, warmups, *rule)
    paths = {peer.name: peer.code_path for peer in peers}
    config: dict[str, Any] = {"target": asdict(engine.target.info), "drafter": asdict(engine.drafter.info)}
    config |= {"code_paths": paths, "slice_tokens": slice_tokens}

    def run() -> tuple[list[Entry], dict[str, Any]]:
        entries = contest.run(lambda prompt: expected(prompt.ids), _show)
        rows = [as_row(standing) for standing in standings(entries, reference)]
        return entries, {"rows": {"entries": [asdict(entry) for entry in entries], "standings": rows}}

    study = Study("engine_benchmark", engine.backend, config | {"reference": reference}, context, "bench.json")
    print("\n".join(table(standings(study.write(run), reference), reference)))
    return 0


def _overhead(options: argparse.Namespace) -> int:
    layout = cache_layout(options)
    _check_depths(options)
    engine = open_selected(options)
    prompts, _ = _prompts(options, engine)
    for label, depth in _depths(options, engine).items():
        turns = [(prompt.ids, turn % 2 == 0) for turn in range(options.repeats) for prompt in prompts]
        passes: dict[bool, list[Overhead]] = {False: [], True: []}
        for ids, first in turns:
            # Both passes over each prompt, in changing order: a slow moment meets either alike.
            for wait in (first, not first):
                passes[wait].append(loop_overhead(engine, ids, options.max_new, depth(), layout=layout, wait=wait))
        plain, waiting = _summed(passes[False]), _summed(passes[True])
        print(
            f"{label}: the loop itself is {plain.share * 100:.2f} % of {plain.steps} steps in {plain.decode_s:.2f} s; "
            f"waiting after every call {waiting.draft_s / waiting.decode_s * 100:.1f} % drafter, "
            f"{waiting.verify_s / waiting.decode_s * 100:.1f} % target, {waiting.share * 100:.2f} % loop, and "
            f"{waiting.decode_s / plain.decode_s:.2f} times as long"
        )
    return 0


def _summed(parts: list[Overhead]) -> Overhead:
    """Return the sums of several decodes."""
    return Overhead(
        sum(part.decode_s for part in parts),
        sum(part.draft_s for part in parts),
        sum(part.verify_s for part in parts),
        sum(part.steps for part in parts),
    )


def _controller(options: argparse.Namespace) -> int:
    names = _worlds(options)
    engine = open_selected(options)
    if engine.drafter.info.name == "none":
        raise UsageError("the controller has nothing to control without a drafter; name one with --drafter")
    if _is_elsewhere(engine):
        raise UsageError(
            f"--drafter {engine.drafter.info.name} is asked elsewhere, and drafts are spoilt where they are asked for; "
            "name one of this process. `kakeya-engine distributed bench` measures the controller over links"
        )
    if cache_layout(options) != CacheLayout.NATIVE:
        raise UsageError(f"--cache {options.cache}: the controller is measured on the native cache; leave it out")
    tokenizer, target = Tokenizer(engine.folder), engine.target.info.name
    short = load_prompts(options.set, tokenizer, target).spread(options.prompts).prompts
    needles = load_prompts("needle", tokenizer, target).prompts
    long = sorted(needles, key=lambda prompt: len(prompt.ids))[-options.prompts :]
    offered = {
        "plain": DrafterWorld("no drafter", short, None, drafts=False),
        "useless": DrafterWorld("useless drafter", short, 0),
        "long": DrafterWorld("useless drafter, long context", long, 0),
        "turning": DrafterWorld("drafter turns useless half-way", short, options.max_new // 2),
        "own": DrafterWorld("drafter as it is", short, None),
    }
    worlds = [offered[name] for name in names]
    check_prompts((prompt.ids for world in worlds for prompt in world.prompts), engine.target.info, options.max_new)
    block = engine.drafter.info.block_size
    context = RunContext.current(out=options.out)
    trial = ControllerTrial(engine, options.max_new, context.nonce, block - 1 if block else 16)
    budgets = [tokens for tokens in BUDGETS if tokens < options.max_new] + [options.max_new]

    def run() -> tuple[dict[str, dict[int, PairedRatio]], dict[str, Any]]:
        pairs = trial.run(worlds, _show_pair)
        by_world = {
            world.name: curve([pair for pair in pairs if pair.world == world.name], budgets) for world in worlds
        }
        rows = {"pairs": [pair.row(budgets) for pair in pairs]}
        curves = {world: {str(tokens): asdict(ratio) for tokens, ratio in by.items()} for world, by in by_world.items()}
        return by_world, {"rows": rows | {"curves": curves}}

    config: dict[str, Any] = {"target": asdict(engine.target.info), "drafter": asdict(engine.drafter.info)}
    config |= {"budgets": budgets, "slice_tokens": SLICE_TOKENS}
    study = Study("controller_benchmark", engine.backend, config, context, "controller.json")
    print(f"plain decode time over the controller's, {len(short)} prompts, [95 %]; 1 is as fast, below 1 slower")
    for world, by in study.write(run).items():
        print(f"{world:<32}" + "".join(f"{n:>6}: {r.value:.3f} [{r.low:.3f}, {r.high:.3f}]" for n, r in by.items()))
    return 0


def contestants(engine: Engine, options: argparse.Namespace) -> list[Contestant]:
    """Return everyone who runs, the library's plain decoding first."""
    target: Any = engine.target
    layout = cache_layout(options, lossless=True)
    draft_model = resolve_model(str(from_here(options.draft_model))) if options.draft_model else None
    if engine.backend.name == "mlx":
        from engine.bench.peers_mlx import mlx_peers

        peers = mlx_peers(engine, target.module, draft_model)
    else:
        from engine.bench.peers_torch import torch_peers

        # One that is asked elsewhere has no folder here that transformers could read.
        here = isinstance(engine.drafter, DFlashModel) and engine.drafter.info.format == "dflash-v1"
        named = chosen_drafter(from_here(options.drafter), engine.folder) if here else None
        folder = resolve_model(named) if named else None
        peers = torch_peers(engine, target.module, folder, draft_model)
    peers += engine_peers(engine, _depths(options, engine), layout)
    if draft_model is not None:
        small = replace(engine, drafter=DraftModel(engine.backend.load_target(draft_model)))
        peers += engine_peers(small, _depths(options, small), layout)[1:]
    return peers


def _is_elsewhere(engine: Engine) -> bool:
    """Return whether drafts come over a link."""
    drafter = engine.drafter.open()
    drafter.close()
    return drafter.round_trip_s("") is not None


def _check_depths(options: argparse.Namespace) -> None:
    """Check every depth before anything is loaded.

    Raises:
        UsageError: If one names no policy.
    """
    for text in options.depths.split(","):
        check_depth(text)


def _worlds(options: argparse.Namespace) -> list[str]:
    """Return the worlds that are asked for, before anything is loaded.

    Raises:
        UsageError: If one is none or there twice, or there would be no interval.
    """
    if options.max_new < 2:
        raise UsageError("--max-new 1: the first token is the prompt's; expected at least 2, to time one behind it")
    if options.prompts < 2:
        raise UsageError("--prompts 1: one prompt says nothing about others; expected at least 2")
    names = options.worlds.split(",") if options.worlds else list(WORLDS)
    if set(names) - set(WORLDS) or len(set(names)) < len(names):
        # The same prompts twice would be counted as twice as many, and the interval be too narrow.
        raise UsageError(f"--worlds {options.worlds!r}; expected some of {','.join(WORLDS)}, each once")
    return names


def _depths(options: argparse.Namespace, engine: Engine) -> dict[str, Callable[[], Depth]]:
    if engine.drafter.info.name == "none":
        return {}
    longest = longest_depth(engine)
    for text in options.depths.split(","):
        # A row of the table must not carry the name of a depth that nothing drafted at.
        if text != AUTO and int(text) > longest:
            raise UsageError(f"--depths {text}; {engine.drafter.info.name} proposes at most {longest} tokens a step")
    return {f"depth {text}": depth_factory(text, engine)[0] for text in options.depths.split(",")}


def _prompts(options: argparse.Namespace, engine: Engine) -> tuple[list[Prompt], list[Prompt]]:
    """Return measured prompts and one warm-up.

    Raises:
        UsageError: If the set is too small.
        PromptError: If the budget does not fit behind one of them.
    """
    loaded = load_prompts(options.set, Tokenizer(engine.folder), engine.target.info.name)
    chosen = loaded.lasting(options.max_new).select(0, 1, options.prompts, 1)
    check_prompts((prompt.ids for part in chosen for prompt in part), engine.target.info, options.max_new)
    return chosen


def _show_pair(pair: Pair) -> None:
    drafts = f"{pair.drafted_steps} drafted steps, {pair.shadow_drafts} shadow drafts"
    print(f"{pair.prompt_id} {pair.world}: {drafts}", file=sys.stderr, flush=True)


def _show(entry: Entry) -> None:
    verdict = "" if entry.identical else "  DIFFERENT TOKENS"
    print(f"{entry.prompt_id} {entry.peer}: {entry.tokens} tokens{verdict}", file=sys.stderr, flush=True)
